//! From a tree to an executable expression: names become slots, kinds are checked, words are spelt.

use std::sync::Arc;

use super::tree::{Binary, Function, Node, Op, Tree};
use super::{Kind, Span};

/// A name that expressions may use.
#[derive(Clone, Debug)]
pub struct Known {
    /// The name.
    pub name: Arc<str>,
    /// Kind of the variable's values.
    pub kind: Kind,
    /// The only words that it can be, if there are such: each with other spellings of it.
    pub words: Option<Vec<(&'static str, &'static [&'static str])>>,
}

/// The names that expressions may use; the index of a name is its slot.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// All names, each once.
    pub names: Vec<Known>,
}

impl Scope {
    /// The slot and the description of `name`.
    pub fn find(&self, name: &str) -> Option<(usize, &Known)> {
        let mut names = self.names.iter().enumerate();
        names.find(|(_, known)| &*known.name == name)
    }
}

/// An expression that is ready to run.
#[derive(Clone, Debug)]
pub struct Expression {
    pub(super) root: Node<usize>,
    kind: Kind,
    text: Arc<str>,
    canonical: Arc<str>,
    float_equalities: Vec<Span>,
    slots: Vec<usize>,
}

/// Expressions are equal if their texts mean the same computation over equal slots.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root && self.canonical == other.canonical
    }
}

/// Why a tree can't run in a scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Place in the text.
    pub span: Span,
    /// The fault.
    pub kind: FaultKind,
}

/// A mistake in an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// A name that is not in scope.
    UnknownName(String),
    /// A word that the name it is compared with can't be.
    UnknownWord {
        /// The word.
        word: String,
        /// The name.
        name: String,
        /// The allowed words.
        known: Vec<&'static str>,
    },
    /// Kinds that don't go together, in words.
    Mismatch(String),
}

impl Expression {
    /// Checks `tree`, which was parsed from `text`, in `scope`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn compile(text: &str, tree: &Tree, scope: &Scope) -> Result<Self, Vec<Fault>> {
        let mut checker = Checker {
            scope,
            faults: Vec::new(),
            float_equalities: Vec::new(),
            slots: Vec::new(),
        };
        let (root, kind) = checker.node(&tree.root);
        match kind {
            Some(kind) if checker.faults.is_empty() => Ok(Expression {
                root,
                kind,
                text: text.into(),
                canonical: tree.to_string().into(),
                float_equalities: checker.float_equalities,
                slots: checker.slots,
            }),
            _ => Err(checker.faults),
        }
    }

    /// Kind of the expression's value.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The text it was written as.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// One spelling for all texts with one meaning.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// Places where a float that was named is compared with `==` or `!=`.
    pub fn float_equalities(&self) -> &[Span] {
        &self.float_equalities
    }

    /// The slots that it reads, in order of appearance, with repetitions.
    pub fn slots(&self) -> &[usize] {
        &self.slots
    }
}

struct Checker<'a> {
    scope: &'a Scope,
    faults: Vec<Fault>,
    float_equalities: Vec<Span>,
    slots: Vec<usize>,
}

/// A checked node, and its kind unless a part of the node was wrong.
type Checked = (Node<usize>, Option<Kind>);

impl Checker<'_> {
    fn fault(&mut self, span: &Span, kind: FaultKind) -> Option<Kind> {
        let span = span.clone();
        self.faults.push(Fault { span, kind });
        None
    }

    fn mismatch(&mut self, span: &Span, message: impl Into<String>) -> Option<Kind> {
        self.fault(span, FaultKind::Mismatch(message.into()))
    }

    fn node(&mut self, node: &Node<String>) -> Checked {
        let span = &node.span;
        let (op, kind) = match &node.op {
            Op::Bool(value) => (Op::Bool(*value), Some(Kind::Bool)),
            Op::Int(value) => (Op::Int(*value), Some(Kind::Int)),
            Op::Float(value) => (Op::Float(*value), Some(Kind::Float)),
            Op::Text(value) => (Op::Text(value.clone()), Some(Kind::Text)),
            Op::Name(name) => self.name(name, span),
            Op::Not(inner) => {
                let (inner, kind) = self.operand(inner, "not", |kind| kind == Kind::Bool);
                (Op::Not(Box::new(inner)), kind)
            }
            Op::Negate(inner) => {
                let (inner, kind) = self.operand(inner, "-", Kind::is_number);
                (Op::Negate(Box::new(inner)), kind)
            }
            Op::Binary(op, left, right) => self.binary(*op, left, right, span),
            Op::In {
                item,
                list,
                negated,
            } => self.membership(item, list, *negated),
            Op::Call(function, arguments) => self.call(*function, arguments),
        };
        let span = span.clone();
        (Node { span, op }, kind)
    }

    fn name(&mut self, name: &str, span: &Span) -> (Op<usize>, Option<Kind>) {
        if let Some((slot, known)) = self.scope.find(name) {
            let kind = known.kind;
            self.slots.push(slot);
            return (Op::Name(slot), Some(kind));
        }
        let kind = self.fault(span, FaultKind::UnknownName(name.to_owned()));
        (Op::Bool(false), kind)
    }

    /// Checks an operand of `symbol` that must be of a kind that `fits`.
    fn operand(&mut self, node: &Node<String>, symbol: &str, fits: fn(Kind) -> bool) -> Checked {
        let (checked, kind) = self.node(node);
        match kind {
            Some(kind) if !fits(kind) => {
                let wanted = if fits(Kind::Bool) {
                    "a condition"
                } else {
                    "a number"
                };
                let message = format!("`{symbol}` takes {wanted}, this is {}", kind.noun());
                let kind = self.mismatch(&node.span, message);
                (checked, kind)
            }
            kind => (checked, kind),
        }
    }

    fn binary(
        &mut self,
        op: Binary,
        left: &Node<String>,
        right: &Node<String>,
        span: &Span,
    ) -> (Op<usize>, Option<Kind>) {
        if op.is_comparison() {
            return self.comparison(op, left, right, span);
        }
        let logical = matches!(op, Binary::And | Binary::Or);
        let fits = if logical {
            |kind| kind == Kind::Bool
        } else {
            Kind::is_number
        };
        let (left, first) = self.operand(left, op.symbol(), fits);
        let (right, second) = self.operand(right, op.symbol(), fits);
        let kind = first.zip(second).map(|kinds| match (op, kinds) {
            (_, (Kind::Bool, _)) => Kind::Bool,
            (Binary::Divide, _) => Kind::Float,
            (_, (Kind::Int, Kind::Int)) => Kind::Int,
            _ => Kind::Float,
        });
        (Op::Binary(op, Box::new(left), Box::new(right)), kind)
    }

    fn comparison(
        &mut self,
        op: Binary,
        left: &Node<String>,
        right: &Node<String>,
        span: &Span,
    ) -> (Op<usize>, Option<Kind>) {
        let (mut first, first_kind) = self.node(left);
        let (mut second, second_kind) = self.node(right);
        let mut kind = None;
        if let (Some(a), Some(b)) = (first_kind, second_kind) {
            kind = Some(Kind::Bool);
            let together = a == b || (a.is_number() && b.is_number());
            if !together {
                kind = self.mismatch(span, format!("{} is compared with {}", a.noun(), b.noun()));
            } else if op.is_ordering() && !a.is_number() {
                let message = format!("{} has no order, only == and !=", a.noun());
                kind = self.mismatch(span, message);
            } else if op.is_equality() {
                self.spell(left, &mut second);
                self.spell(right, &mut first);
                let sides = [(left, a), (right, b)];
                // A quotient of whole numbers may well be a whole number.
                let is_whole = sides.iter().all(|(node, kind)| {
                    *kind == Kind::Int || !self.has_name(node, |kind| kind == Kind::Float)
                });
                let is_ratio = is_whole && a != b;
                let named = |(node, kind): &(&Node<String>, Kind)| {
                    *kind == Kind::Float && self.has_name(node, |_| true)
                };
                if !is_ratio && sides.iter().any(named) {
                    self.float_equalities.push(span.clone());
                }
            }
        }
        (Op::Binary(op, Box::new(first), Box::new(second)), kind)
    }

    /// Whether a node has a name of such a kind.
    fn has_name(&self, node: &Node<String>, is_meant: impl Fn(Kind) -> bool) -> bool {
        let mut found = false;
        node.names(&mut |name, _| {
            found |= self
                .scope
                .find(name)
                .is_none_or(|(_, known)| is_meant(known.kind));
        });
        found
    }

    /// Spells the literal `word` as the name `of`, which it is compared with, spells its words.
    fn spell(&mut self, of: &Node<String>, word: &mut Node<usize>) {
        let (Op::Name(name), Op::Text(text)) = (&of.op, &mut word.op) else {
            return;
        };
        let known = self
            .scope
            .find(name)
            .and_then(|(_, known)| known.words.as_ref());
        let Some(words) = known else { return };
        let found = words.iter().find(|(word, others)| {
            let mut spellings = std::iter::once(word).chain(others.iter());
            spellings.any(|spelling| spelling.eq_ignore_ascii_case(text))
        });
        if let Some((word, _)) = found {
            *text = (*word).to_owned();
            return;
        }
        let kind = FaultKind::UnknownWord {
            word: text.clone(),
            name: name.clone(),
            known: words.iter().map(|(word, _)| *word).collect(),
        };
        self.fault(&word.span, kind);
    }

    fn membership(
        &mut self,
        item: &Node<String>,
        list: &[Node<String>],
        negated: bool,
    ) -> (Op<usize>, Option<Kind>) {
        let (checked, wanted) = self.node(item);
        let mut all = wanted.map(|_| Kind::Bool);
        let mut members = Vec::with_capacity(list.len());
        for node in list {
            let (mut member, kind) = self.node(node);
            self.spell(item, &mut member);
            if let (Some(a), Some(b)) = (wanted, kind)
                && a != b
                && !(a.is_number() && b.is_number())
            {
                let message = format!("{} can't be {}", a.noun(), b.noun());
                all = self.mismatch(&node.span, message);
            }
            if kind.is_none() {
                all = None;
            }
            members.push(member);
        }
        let op = Op::In {
            item: Box::new(checked),
            list: members,
            negated,
        };
        (op, all)
    }

    fn call(
        &mut self,
        function: Function,
        arguments: &[Node<String>],
    ) -> (Op<usize>, Option<Kind>) {
        let whole = matches!(function, Function::CeilDiv | Function::NextPow2);
        let mut kind = match function {
            Function::Min | Function::Max | Function::Abs | Function::Where => Some(Kind::Int),
            _ if whole => Some(Kind::Int),
            _ => Some(Kind::Float),
        };
        let mut checked = Vec::with_capacity(arguments.len());
        let (conditions, numbers) = arguments.split_at(match function {
            Function::Where => 1,
            _ => 0,
        });
        for node in conditions {
            let (condition, found) = self.operand(node, function.name(), |kind| kind == Kind::Bool);
            checked.push(condition);
            kind = kind.and(found.map(|_| Kind::Int));
        }
        for node in numbers {
            let (argument, found) = self.operand(node, function.name(), Kind::is_number);
            checked.push(argument);
            kind = match (kind, found) {
                (Some(_), Some(Kind::Float)) if whole => {
                    let message = format!("`{}` takes integers, this is a float", function.name());
                    self.mismatch(&node.span, message)
                }
                (Some(Kind::Int), Some(Kind::Int)) => Some(Kind::Int),
                (Some(_), Some(_)) => Some(Kind::Float),
                _ => None,
            };
        }
        if function == Function::Int {
            kind = kind.map(|_| Kind::Int);
        }
        (Op::Call(function, checked), kind)
    }
}
