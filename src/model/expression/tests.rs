//! The language against Python, another evaluator and the laws of arithmetic.

use proptest::prelude::*;
use sweeper_program::Value;

use super::*;

fn scope() -> Scope {
    let known = |name: &str, kind, words| Known {
        name: name.into(),
        kind,
        words,
    };
    let words: Vec<(&'static str, &'static [&'static str])> = vec![("log", &["Log"]), ("max", &[])];
    Scope {
        names: vec![
            known("a", Kind::Int, None),
            known("b", Kind::Int, None),
            known("x", Kind::Float, None),
            known("word", Kind::Text, Some(words)),
            known("flag", Kind::Bool, None),
        ],
    }
}

fn slots(a: i64, b: i64) -> [Operand<'static>; 5] {
    [
        Operand::Int(a),
        Operand::Int(b),
        Operand::Float(0.5),
        Operand::Text("log"),
        Operand::Bool(true),
    ]
}

fn compile(text: &str) -> Expression {
    let tree = Tree::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    Expression::compile(text, &tree, &scope()).unwrap_or_else(|faults| panic!("{text}: {faults:?}"))
}

fn value(text: &str) -> Result<Value, Arithmetic> {
    let expression = compile(text);
    let value = expression.evaluate(&slots(7, -2));
    value.map(Value::from).map_err(|error| error.problem)
}

#[test]
fn values_are_those_of_python() {
    let int = |value| Ok(Value::Int(value));
    let float = |value| Ok(Value::Float(value));
    for (text, expected) in [
        ("1 + 2 * 3", int(7)),
        ("(1 + 2) * 3", int(9)),
        ("7 // 2", int(3)),
        ("-7 // 2", int(-4)),
        ("7 // -2", int(-4)),
        ("-7 % 3", int(2)),
        ("7 % -3", int(-2)),
        ("a % b", int(-1)),
        ("7 / 2", float(3.5)),
        ("1 << 7", int(128)),
        ("1 + 1 << 2 * 3", int(128)),
        ("-9 >> 1", int(-5)),
        ("int(a / 2)", int(3)),
        ("int(-a / 2)", int(-3)),
        ("1 if a > 9 else 2 if b < 0 else 3", int(2)),
        ("10 * (a if flag else b)", int(70)),
        ("6 / 2", float(3.0)),
        ("7.5 // 2", float(3.0)),
        ("-7.5 % 2", float(0.5)),
        ("2 ** 10", int(1024)),
        ("2 ** 3 ** 2", int(512)),
        ("-2 ** 2", int(-4)),
        ("2.0 ** -1", float(0.5)),
        ("1 ** 1000000", int(1)),
        ("(-1) ** 1000001", int(-1)),
        ("0 ** 0", int(1)),
        ("0 ** 1000000", int(0)),
        ("1_000 + .5e1", float(1005.0)),
        ("min(a, b, 3)", int(-2)),
        ("max(a, 2.5)", float(7.0)),
        ("ceil_div(7, 2)", int(4)),
        ("ceil_div(-7, 2)", int(-3)),
        ("next_pow2(a)", int(8)),
        ("next_pow2(0)", int(1)),
        ("next_pow2(1024)", int(1024)),
        ("- - a", int(7)),
        ("+a", int(7)),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn conditions_are_those_of_python() {
    for (text, expected) in [
        ("a > 3 and b < 0", true),
        ("not a == 7", false),
        ("not (a == 7) or flag", true),
        ("true or false and false", true),
        ("a in [1, 7]", true),
        ("a not in [1, 7]", false),
        ("a in (1, 7)", true),
        ("a in []", false),
        ("not a in [1]", true),
        ("word == 'log'", true),
        ("word == 'Log'", true),
        ("'LOG' == word", true),
        ("word in ['max', 'LOG']", true),
        ("word != 'max'", true),
        ("word == \"log\"", true),
        ("a == 7.0", true),
        ("x * 2 >= 1", true),
        ("flag == True", true),
        ("(a < b) == (b > a)", true),
        // The right side is not evaluated where the left decides.
        ("a > 100 and a // 0 == 1", false),
        ("a < 100 or a // 0 == 1", true),
    ] {
        let expression = compile(text);
        assert_eq!(expression.kind(), Kind::Bool, "{text}");
        assert_eq!(expression.holds(&slots(7, -2)), Ok(expected), "{text}");
    }
}

#[test]
fn what_has_no_value_says_where() {
    for (text, problem, span) in [
        ("1 + a // (b + 2)", Arithmetic::DivisionByZero, 4..16),
        ("a % 0", Arithmetic::DivisionByZero, 0..5),
        ("a / 0", Arithmetic::DivisionByZero, 0..5),
        ("1.0 / (x - 0.5)", Arithmetic::DivisionByZero, 0..15),
        ("0.0 ** -1", Arithmetic::DivisionByZero, 0..9),
        ("ceil_div(a, b + 2)", Arithmetic::DivisionByZero, 0..18),
        ("9223372036854775807 + 1", Arithmetic::Overflow, 0..23),
        ("a ** 100", Arithmetic::Overflow, 0..8),
        (
            "(-9223372036854775807 - 1) // -1",
            Arithmetic::Overflow,
            0..32,
        ),
        ("-(-9223372036854775807 - 1)", Arithmetic::Overflow, 0..27),
        (
            "next_pow2(9223372036854775807)",
            Arithmetic::Overflow,
            0..30,
        ),
        ("10.0 ** 400", Arithmetic::Overflow, 0..11),
        ("a ** b", Arithmetic::NegativePower, 0..6),
        ("(-8.0) ** 0.5", Arithmetic::NotReal, 0..13),
    ] {
        let expression = compile(text);
        let error = expression.evaluate(&slots(7, -2)).unwrap_err();
        assert_eq!((error.problem, error.span), (problem, span), "{text}");
    }
    // A remainder by -1 is zero, even of the least integer.
    assert_eq!(value("(-9223372036854775807 - 1) % -1"), Ok(Value::Int(0)));
}

#[test]
fn deep_and_long_texts_are_refused_not_survived() {
    let deep = format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(Tree::parse(&deep).is_err());
    let long = vec!["1"; 10_000].join(" + ");
    assert!(Tree::parse(&long).is_err());
    assert!(Tree::parse(&"not ".repeat(400)).is_err());
    assert!(Tree::parse(&"-".repeat(400)).is_err());
    assert!(Tree::parse(&vec!["1"; 400].join(" + ")).is_ok());
}

#[test]
fn the_canonical_form_has_one_spelling() {
    let canonical = |text: &str| compile(text).canonical().to_owned();
    assert_eq!(canonical("a+b*2"), "(a + (b * 2))");
    assert_eq!(canonical("a  +( b*2 )"), canonical("a+b*2"));
    assert_eq!(
        canonical("word in ['log',  \"max\",]"),
        "(word in ['log', 'max'])"
    );
    assert_eq!(canonical("-a ** 2"), "(-(a ** 2))");
}

/// A random expression as text, with its value by an independent evaluator on 128-bit integers: a
/// value, or nothing where a step does not fit or divides by zero.
fn integer_expression() -> impl Strategy<Value = (String, Option<i128>)> {
    let leaf = prop_oneof![
        (-20i64..20).prop_map(|value| match value {
            0.. => (value.to_string(), Some(i128::from(value))),
            _ => (format!("({value})"), Some(i128::from(value))),
        }),
        Just(("a".to_owned(), Some(7))),
        Just(("b".to_owned(), Some(-2))),
    ];
    leaf.prop_recursive(5, 64, 2, |inner| {
        (inner.clone(), inner, 0usize..7).prop_map(|((left, a), (right, b), op)| {
            let fits = |value: i128| i64::try_from(value).ok().map(i128::from);
            let value = a.zip(b).and_then(|(a, b)| match op {
                0 => fits(a + b),
                1 => fits(a - b),
                2 => fits(a * b),
                3 if b == 0 => None,
                3 => fits(floor(a, b)),
                4 => (b != 0).then(|| a - b * floor(a, b)),
                5 => Some(a.min(b)),
                _ => Some(a.max(b)),
            });
            let text = match op {
                5 => format!("min({left}, {right})"),
                6 => format!("max({left}, {right})"),
                _ => format!("({left} {} {right})", ["+", "-", "*", "//", "%"][op]),
            };
            (text, value)
        })
    })
}

fn floor(a: i128, b: i128) -> i128 {
    // Rounding down is `div_euclid` for a positive divisor.
    (a * b.signum()).div_euclid(b.abs())
}

proptest! {
    #[test]
    fn integers_agree_with_another_evaluator((text, expected) in integer_expression()) {
        let tree = Tree::parse(&text).unwrap();
        let expression = Expression::compile(&text, &tree, &scope()).unwrap();
        let value = expression.evaluate(&slots(7, -2)).ok();
        let value = value.map(|value| match value {
            Operand::Int(value) => i128::from(value),
            other => panic!("{other:?}"),
        });
        prop_assert_eq!(value, expected, "{}", text);
    }

    #[test]
    fn division_and_remainder_belong_together(a in any::<i32>(), b in any::<i32>()) {
        prop_assume!(b != 0);
        let text = "a == (a // b) * b + a % b and (a % b == 0 or (a % b > 0) == (b > 0))";
        prop_assert_eq!(compile(text).holds(&slots(a.into(), b.into())), Ok(true));
    }

    #[test]
    fn logic_obeys_de_morgan(a in -3i64..3, b in -3i64..3) {
        let text = "(not (a > 0 and b > 0)) == (not a > 0 or not b > 0)";
        prop_assert_eq!(compile(text).holds(&slots(a, b)), Ok(true));
        let text = "(a in [1, 2]) == (a == 1 or a == 2)";
        prop_assert_eq!(compile(text).holds(&slots(a, b)), Ok(true));
    }

    #[test]
    fn bounds_of_rounding_hold(a in 1i64..1 << 40, b in 1i64..1000) {
        let text = "ceil_div(a, b) * b >= a and (ceil_div(a, b) - 1) * b < a \
                    and next_pow2(a) >= a and next_pow2(a) < 2 * a";
        prop_assert_eq!(compile(text).holds(&slots(a, b)), Ok(true));
    }

    #[test]
    fn the_canonical_form_says_the_same((text, _) in integer_expression()) {
        let expression = compile(&text);
        let again = compile(expression.canonical());
        prop_assert_eq!(again.canonical(), expression.canonical());
        let values = slots(7, -2);
        prop_assert_eq!(
            again.evaluate(&values).map_err(|error| error.problem),
            expression.evaluate(&values).map_err(|error| error.problem)
        );
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[ab01 ()+*/%<>=!'\"\\[\\],.notinadr_é&|-]{0,40}") {
        if let Ok(tree) = Tree::parse(&text)
            && let Ok(expression) = Expression::compile(&text, &tree, &scope())
        {
            let _ = expression.evaluate(&slots(7, -2));
        }
    }
}
