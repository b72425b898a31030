//! Python expressions as T1 files have them for lists of values and sizes: numbers, strings, lists,
//! `range`, comprehensions over one name, arithmetic, `min`, `max`, `len`, `list`. Other tools run
//! `eval` on them; this reads them.

use std::collections::BTreeMap;

/// A value of Python.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f64),
    /// `True` or `False`.
    Bool(bool),
    /// A string.
    Text(String),
    /// A list, a tuple or a range.
    List(Vec<Object>),
}

/// Names with their values.
pub type Names = BTreeMap<String, Object>;

/// A list is no longer than this, and no more values are looked at for one.
const MOST: i64 = 1_000_000;

/// Expressions nest no deeper than this: each level takes some of the stack.
const DEEPEST: u32 = 64;

/// The value of an expression.
///
/// # Errors
/// A sentence: what can't be read, or has no value.
pub fn evaluate(text: &str, names: &Names) -> Result<Object, String> {
    let mut reader = Reader {
        rest: text,
        names: names.clone(),
        depth: 0,
        atoms: 0,
    };
    reader.whole()
}

fn too_many() -> String {
    format!("it has more than {MOST} values")
}

struct Reader<'t> {
    rest: &'t str,
    names: Names,
    /// Expressions that the one that is read is part of.
    depth: u32,
    /// Values that were looked at.
    atoms: i64,
}

impl<'t> Reader<'t> {
    /// The value of all of the text.
    fn whole(&mut self) -> Result<Object, String> {
        let text = self.rest;
        let value = self.sum();
        let value = value.and_then(|value| match self.rest.trim_start() {
            "" => Ok(value),
            rest => Err(format!("`{rest}` is not understood")),
        });
        value.map_err(|reason| format!("`{text}`: {reason}"))
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let Some(after) = self.rest.trim_start().strip_prefix(symbol) else {
            return false;
        };
        // `*` is not a beginning of `**`, nor `/` of `//`.
        let is_longer = ["*", "/"].contains(&symbol) && after.starts_with(symbol);
        if !is_longer {
            self.rest = after;
        }
        !is_longer
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        match self.accept(symbol) {
            true => Ok(()),
            false => Err(format!(
                "`{symbol}` was expected before `{}`",
                self.rest.trim()
            )),
        }
    }

    fn word(&mut self) -> Option<&'t str> {
        let rest = self.rest.trim_start();
        let is_name = |c: char| c == '_' || c.is_alphanumeric();
        if !rest.starts_with(|c: char| c == '_' || c.is_alphabetic()) {
            return None;
        }
        let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        self.rest = &rest[end..];
        Some(&rest[..end])
    }

    fn sum(&mut self) -> Result<Object, String> {
        let mut value = self.product()?;
        loop {
            if self.accept("+") {
                value = combined("+", value, self.product()?)?;
            } else if self.accept("-") {
                value = combined("-", value, self.product()?)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<Object, String> {
        let mut value = self.signed()?;
        loop {
            let symbol = ["//", "*", "/", "%"]
                .into_iter()
                .find(|symbol| self.accept(symbol));
            let Some(symbol) = symbol else {
                return Ok(value);
            };
            value = combined(symbol, value, self.signed()?)?;
        }
    }

    fn signed(&mut self) -> Result<Object, String> {
        if self.depth >= DEEPEST {
            return Err(format!("it nests deeper than {DEEPEST} expressions"));
        }
        self.depth += 1;
        let value = self.signed_within();
        self.depth -= 1;
        value
    }

    fn signed_within(&mut self) -> Result<Object, String> {
        if self.accept("-") {
            return combined("-", Object::Int(0), self.signed()?);
        }
        let base = self.indexed()?;
        match self.accept("**") {
            true => combined("**", base, self.signed()?),
            false => Ok(base),
        }
    }

    fn indexed(&mut self) -> Result<Object, String> {
        let mut value = self.atom()?;
        while self.accept("[") {
            let index = self.sum()?;
            self.expect("]")?;
            value = match (value, index) {
                (Object::List(items), Object::Int(index)) => usize::try_from(index)
                    .ok()
                    .and_then(|index| items.get(index).cloned())
                    .ok_or_else(|| format!("there is no element {index}"))?,
                _ => return Err("an index of what is not a list".to_owned()),
            };
        }
        Ok(value)
    }

    fn atom(&mut self) -> Result<Object, String> {
        self.atoms += 1;
        if self.atoms > MOST {
            return Err(too_many());
        }
        if self.accept("(") {
            let value = self.sum()?;
            self.expect(")")?;
            return Ok(value);
        }
        if self.accept("[") {
            return self.list("]");
        }
        let rest = self.rest.trim_start();
        if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            let end = rest[1..].find(quote).ok_or("a string that never ends")?;
            self.rest = &rest[end + 2..];
            return Ok(Object::Text(rest[1..=end].to_owned()));
        }
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            return self.number();
        }
        match self.word() {
            Some("True") => Ok(Object::Bool(true)),
            Some("False") => Ok(Object::Bool(false)),
            Some(name) if self.accept("(") => {
                let arguments = self.list(")")?;
                call(name, arguments)
            }
            Some(name) => {
                let value = self.names.get(name).cloned();
                value.ok_or_else(|| format!("`{name}` is not known"))
            }
            None => Err(format!("`{rest}` is not understood")),
        }
    }

    fn number(&mut self) -> Result<Object, String> {
        let rest = self.rest.trim_start();
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | 'e' | '_')))
            .unwrap_or(rest.len());
        self.rest = &rest[end..];
        let text = rest[..end].replace('_', "");
        let whole = text.parse().map(Object::Int);
        whole
            .or_else(|_| text.parse().map(Object::Float))
            .map_err(|_| format!("`{text}` is not a number"))
    }

    /// Items up to the closing bracket: written out, or `expression for name in list`.
    fn list(&mut self, close: &str) -> Result<Object, String> {
        let mut items = Vec::new();
        loop {
            if self.accept(close) {
                return Ok(Object::List(items));
            }
            let (before, names) = (self.rest, self.names.clone());
            let value = self.sum();
            if self.atoms > MOST {
                return Err(too_many());
            }
            // The name of a comprehension stands behind its expression.
            if let Some(comprehension) = self.comprehension(before, names, close)? {
                return Ok(comprehension);
            }
            items.push(value?);
            if !self.accept(",") {
                self.expect(close)?;
                return Ok(Object::List(items));
            }
        }
    }

    /// `expression for name in list`, if the text `before` is one.
    fn comprehension(
        &mut self,
        before: &'t str,
        names: Names,
        close: &str,
    ) -> Result<Option<Object>, String> {
        let Some(at) = for_of(before) else {
            return Ok(None);
        };
        let (expression, behind) = (&before[..at], &before[at + " for ".len()..]);
        self.rest = behind;
        let name = self.word().ok_or("`for` without a name")?.to_owned();
        if self.word() != Some("in") {
            return Err("`for` without `in`".to_owned());
        }
        self.names = names;
        let Object::List(values) = self.sum()? else {
            return Err("`for` over what is not a list".to_owned());
        };
        self.expect(close)?;
        let mut items = Vec::new();
        for value in values {
            let mut names = self.names.clone();
            names.insert(name.clone(), value);
            let mut reader = Reader {
                rest: expression,
                names,
                depth: self.depth,
                atoms: self.atoms,
            };
            let value = reader.whole();
            self.atoms = reader.atoms;
            items.push(value?);
        }
        // A list in brackets is one argument of a call.
        Ok(Some(match close {
            ")" => Object::List(vec![Object::List(items)]),
            _ => Object::List(items),
        }))
    }
}

/// Where ` for ` stands in the item that a text begins with, outside of its brackets.
fn for_of(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' if depth == 0 => return None,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => return None,
            ' ' if depth == 0 && text[at..].starts_with(" for ") => return Some(at),
            _ => {}
        }
    }
    None
}

fn combined(symbol: &str, a: Object, b: Object) -> Result<Object, String> {
    if let (Object::List(a), Object::List(b), "+") = (&a, &b, symbol) {
        return Ok(Object::List([a.clone(), b.clone()].concat()));
    }
    if let (Object::Int(a), Object::Int(b)) = (&a, &b) {
        let (a, b) = (*a, *b);
        let whole = match symbol {
            "+" => a.checked_add(b),
            "-" => a.checked_sub(b),
            "*" => a.checked_mul(b),
            "//" => (b != 0).then(|| (a as f64 / b as f64).floor() as i64),
            "%" => (b != 0).then(|| a - b * (a as f64 / b as f64).floor() as i64),
            "**" => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            _ => return Ok(Object::Float(a as f64 / b as f64)),
        };
        return whole
            .map(Object::Int)
            .ok_or_else(|| format!("{a} {symbol} {b} has no value"));
    }
    let real = |object: Object| match object {
        Object::Int(value) => Ok(value as f64),
        Object::Float(value) => Ok(value),
        other => Err(format!("{other:?} is not a number")),
    };
    let (a, b) = (real(a)?, real(b)?);
    Ok(Object::Float(match symbol {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "//" => (a / b).floor(),
        "%" => a - b * (a / b).floor(),
        _ => a.powf(b),
    }))
}

fn call(name: &str, arguments: Object) -> Result<Object, String> {
    let Object::List(arguments) = arguments else {
        return Err(format!("`{name}` without arguments"));
    };
    let whole = |at: usize| match arguments.get(at) {
        Some(Object::Int(value)) => Ok(*value),
        _ => Err(format!("`{name}` takes whole numbers")),
    };
    let all = match arguments.as_slice() {
        [Object::List(items)] => items.clone(),
        several => several.to_vec(),
    };
    let number = |object: &Object| match object {
        Object::Int(value) => Some(*value as f64),
        Object::Float(value) => Some(*value),
        _ => None,
    };
    match name {
        "range" => {
            let (first, end, step) = match arguments.len() {
                1 => (0, whole(0)?, 1),
                2 => (whole(0)?, whole(1)?, 1),
                _ => (whole(0)?, whole(1)?, whole(2)?),
            };
            if step == 0 || (end - first) / step > MOST {
                return Err("a range without an end".to_owned());
            }
            // As many steps as stay before the end.
            let span = (end - first).saturating_mul(step.signum());
            let count = match span > 0 {
                true => (span - 1) / step.abs() + 1,
                false => 0,
            };
            let items = (0..count).map(|at| Object::Int(first + at * step));
            Ok(Object::List(items.collect()))
        }
        "list" | "tuple" => Ok(Object::List(all)),
        "len" => Ok(Object::Int(all.len() as i64)),
        "max" | "min" => {
            let order = |a: &&Object, b: &&Object| {
                let (a, b) = (number(a), number(b));
                a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal)
            };
            let found = match name {
                "max" => all.iter().max_by(order),
                _ => all.iter().min_by(order),
            };
            found.cloned().ok_or_else(|| format!("`{name}` of nothing"))
        }
        "int" | "ceil" | "floor" => {
            let value = all.first().and_then(number).ok_or("no number")?;
            Ok(Object::Int(match name {
                "ceil" => value.ceil() as i64,
                _ => value.floor() as i64,
            }))
        }
        _ => Err(format!("there is no function `{name}` here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Vec<i64> {
        let Ok(Object::List(items)) = evaluate(text, &Names::new()) else {
            panic!("{text}: {:?}", evaluate(text, &Names::new()));
        };
        let whole = |item: Object| match item {
            Object::Int(value) => value,
            other => panic!("{text}: {other:?}"),
        };
        items.into_iter().map(whole).collect()
    }

    /// Neither a letter beyond ASCII nor deep nesting ends the program, and lists in lists, each of
    /// which is read once more for each value of its name, end.
    #[test]
    fn what_no_tuner_writes_is_refused() {
        let refusal = |text: &str| evaluate(text, &Names::new()).unwrap_err();
        assert!(refusal("[2 \u{e9} 3]").contains("expected"));
        assert!(refusal("\u{e9}").contains("not known"));
        assert!(refusal(&"(".repeat(100_000)).contains("nests deeper"));
        assert!(refusal(&"-".repeat(100_000)).contains("nests deeper"));
        let mut nested = "1".to_owned();
        for name in 0..30 {
            nested = format!("[{nested} for n{name} in [1, 2, 3]]");
        }
        assert!(refusal(&nested).contains("values"));
    }

    /// As the files of BAT and Kernel Tuner write them.
    #[test]
    fn lists_of_values_are_read() {
        assert_eq!(whole("[64, 128, 256, 512]"), [64, 128, 256, 512]);
        assert_eq!(whole("list(range(32, 1000+1, 32))").len(), 31);
        assert_eq!(whole("list(range(1,16))"), (1..16).collect::<Vec<_>>());
        assert_eq!(whole("[1] + [2*i for i in range(1,11)]")[..3], [1, 2, 4]);
        assert_eq!(whole("[2**i for i in range(6)]"), [1, 2, 4, 8, 16, 32]);
        assert_eq!(whole("[128+64*i for i in range(15)]").last(), Some(&1024));
        assert_eq!(whole("range(10, 0, -4)"), [10, 6, 2]);
        assert_eq!(whole("[i for i in range(3,35,2)]").len(), 16);
        assert_eq!(
            whole("[max(16, 3), min([4, 2]), 7 // -2, -7 % 3]"),
            [16, 2, -4, 2]
        );
    }

    #[test]
    fn sizes_use_names() {
        let list = |items: &[i64]| Object::List(items.iter().copied().map(Object::Int).collect());
        let names: Names = [
            ("ProblemSize".to_owned(), list(&[4096, 4096])),
            ("filter_width".to_owned(), list(&[3, 17])),
        ]
        .into();
        let size = "(ProblemSize[0]+max(filter_width)-1) * (ProblemSize[1]+max(filter_width)-1)";
        assert_eq!(evaluate(size, &names), Ok(Object::Int(4112 * 4112)));
        for wrong in [
            "",
            "open",
            "[1, 2",
            "__import__('os')",
            "range(10**9)",
            "1 / 'a'",
        ] {
            assert!(evaluate(wrong, &names).is_err(), "{wrong}");
        }
    }
}
