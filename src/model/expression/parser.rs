//! From tokens to a tree, by operator precedence (Pratt): `a if c else b`, `or`, `and`, `not`,
//! comparisons and `in`, shifts, sums, products, signs, powers, from loose to tight. Powers bind to
//! the right. What Python has under another name becomes a tree of what is here: a shift is a
//! product with a power of two, `a if c else b` is `where(c, a, b)`.

use super::lexer::{Token, TokenKind, tokens};
use super::tree::{Binary, Function, Node, Op};
use super::{Span, SyntaxError};

/// Brackets and operators may nest this deep.
const MAX_DEPTH: usize = 64;

const NOT: u8 = 6;
const COMPARISON: u8 = 8;
const SHIFT: u8 = 10;
const SIGN: u8 = 16;

/// Longer expressions are refused, so that no tree can be deep enough to hurt.
const MAX_TOKENS: usize = 1000;

/// Binding power to the left and to the right.
fn power(op: Binary) -> (u8, u8) {
    match op {
        Binary::Or => (2, 3),
        Binary::And => (4, 5),
        Binary::Add | Binary::Subtract => (12, 13),
        Binary::Multiply | Binary::Divide | Binary::FloorDivide | Binary::Modulo => (14, 15),
        Binary::Power => (18, SIGN),
        _ => (COMPARISON, COMPARISON + 1),
    }
}

const BINARY: [Binary; 15] = [
    Binary::Or,
    Binary::And,
    Binary::Equal,
    Binary::Unequal,
    Binary::Less,
    Binary::LessEqual,
    Binary::Greater,
    Binary::GreaterEqual,
    Binary::Add,
    Binary::Subtract,
    Binary::Multiply,
    Binary::Divide,
    Binary::FloorDivide,
    Binary::Modulo,
    Binary::Power,
];

pub(super) fn parse(text: &str) -> Result<Node<String>, SyntaxError> {
    let tokens = tokens(text)?;
    if tokens.len() > MAX_TOKENS {
        let span = tokens[MAX_TOKENS].span.clone();
        return Err(SyntaxError::new(span, "the expression is too long"));
    }
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
    };
    if parser.peek().kind == TokenKind::End {
        return Err(SyntaxError::new(
            0..text.len(),
            "there is no expression here",
        ));
    }
    let root = parser.expression(0)?;
    match parser.peek() {
        Token {
            kind: TokenKind::End,
            ..
        } => Ok(root),
        token => Err(unexpected(token, "an operator")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at]
    }

    fn next(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn accept(&mut self, symbol: &str) -> Option<Span> {
        let matches = match &self.peek().kind {
            TokenKind::Symbol(held) => *held == symbol,
            TokenKind::Name(held) => held == symbol,
            _ => false,
        };
        matches.then(|| self.next().span)
    }

    fn expect(&mut self, symbol: &str) -> Result<Span, SyntaxError> {
        self.accept(symbol)
            .ok_or_else(|| unexpected(self.peek(), &format!("`{symbol}`")))
    }

    /// Reads operands and operators that bind at least as tightly as `least`.
    fn expression(&mut self, least: u8) -> Result<Node<String>, SyntaxError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let span = self.peek().span.clone();
            return Err(SyntaxError::new(span, "nested too deeply"));
        }
        let mut left = self.prefix()?;
        loop {
            if least <= COMPARISON
                && let Some(negated) = self.membership()
            {
                left = self.list(left, negated)?;
                continue;
            }
            if least <= SHIFT
                && let Some(op) = self.shift()
            {
                let by = self.expression(SHIFT + 1)?;
                left = shifted(op, left, by);
                continue;
            }
            let Some(op) = self.operator()? else { break };
            let (binds_left, binds_right) = power(op);
            if binds_left < least {
                break;
            }
            let at = self.next().span;
            refuse_chain(&left, op, &at)?;
            let right = self.expression(binds_right)?;
            let span = left.span.start..right.span.end;
            left = Node {
                span,
                op: Op::Binary(op, Box::new(left), Box::new(right)),
            };
        }
        if least == 0 && self.accept("if").is_some() {
            let condition = self.expression(1)?;
            self.expect("else")?;
            let other = self.expression(0)?;
            left = Node {
                span: left.span.start..other.span.end,
                op: Op::Call(Function::Where, vec![condition, left, other]),
            };
        }
        self.depth -= 1;
        Ok(left)
    }

    /// Reads a sign that shifts: what it multiplies a power of two by, or divides.
    fn shift(&mut self) -> Option<Binary> {
        match self.accept("<<") {
            Some(_) => Some(Binary::Multiply),
            None => self.accept(">>").map(|_| Binary::FloorDivide),
        }
    }

    /// The binary operator that comes next; `None` where the expression may end.
    fn operator(&self) -> Result<Option<Binary>, SyntaxError> {
        let token = self.peek();
        let word = match &token.kind {
            TokenKind::Symbol(symbol) => symbol,
            TokenKind::Name(name) => name.as_str(),
            _ => return Ok(None),
        };
        let hint = match word {
            "&&" => "and",
            "||" => "or",
            _ => return Ok(BINARY.into_iter().find(|op| op.symbol() == word)),
        };
        let error = SyntaxError::new(token.span.clone(), format!("`{word}` means nothing here"));
        Err(error.help(format!("write `{hint}`")))
    }

    /// Reads `in` or `not in`, and says whether it was negated.
    fn membership(&mut self) -> Option<bool> {
        if self.accept("in").is_some() {
            return Some(false);
        }
        let is = |token: Option<&Token>, word| {
            token.is_some_and(|token| matches!(&token.kind, TokenKind::Name(name) if name == word))
        };
        if is(Some(self.peek()), "not") && is(self.tokens.get(self.at + 1), "in") {
            self.next();
            self.next();
            return Some(true);
        }
        None
    }

    fn list(&mut self, item: Node<String>, negated: bool) -> Result<Node<String>, SyntaxError> {
        let close = match self.accept("(") {
            Some(_) => ")",
            None => {
                self.expect("[")?;
                "]"
            }
        };
        let (list, end) = self.arguments(close)?;
        Ok(Node {
            span: item.span.start..end,
            op: Op::In {
                item: Box::new(item),
                list,
                negated,
            },
        })
    }

    /// Expressions up to the closing bracket, and where that ends.
    fn arguments(&mut self, close: &str) -> Result<(Vec<Node<String>>, usize), SyntaxError> {
        let mut found = Vec::new();
        loop {
            if let Some(span) = self.accept(close) {
                return Ok((found, span.end));
            }
            found.push(self.expression(0)?);
            if self.accept(",").is_none() {
                let span = self.expect(close)?;
                return Ok((found, span.end));
            }
        }
    }

    fn prefix(&mut self) -> Result<Node<String>, SyntaxError> {
        let token = self.next();
        let span = token.span.clone();
        let op = match token.kind {
            TokenKind::Int(value) => Op::Int(value),
            TokenKind::Float(value) => Op::Float(value),
            TokenKind::Text(value) => Op::Text(value),
            TokenKind::Name(name) => return self.word(name, span),
            TokenKind::Symbol("-") => {
                let inner = self.expression(SIGN)?;
                let span = span.start..inner.span.end;
                let op = Op::Negate(Box::new(inner));
                return Ok(Node { span, op });
            }
            TokenKind::Symbol("+") => return self.expression(SIGN),
            TokenKind::Symbol("(") => {
                let inner = self.expression(0)?;
                let end = self.expect(")")?.end;
                let span = span.start..end;
                return Ok(Node { span, op: inner.op });
            }
            _ => return Err(unexpected(&token, "a value")),
        };
        Ok(Node { span, op })
    }

    fn word(&mut self, name: String, span: Span) -> Result<Node<String>, SyntaxError> {
        let op = match name.as_str() {
            "true" | "True" => Op::Bool(true),
            "false" | "False" => Op::Bool(false),
            "not" => {
                let inner = self.expression(NOT)?;
                let span = span.start..inner.span.end;
                let op = Op::Not(Box::new(inner));
                return Ok(Node { span, op });
            }
            "and" | "or" | "in" => {
                let kind = TokenKind::Name(name);
                return Err(unexpected(&Token { span, kind }, "a value"));
            }
            _ if self.accept("(").is_some() => return self.call(&name, span),
            _ => Op::Name(name),
        };
        Ok(Node { span, op })
    }

    fn call(&mut self, name: &str, span: Span) -> Result<Node<String>, SyntaxError> {
        let known = Function::ALL.into_iter().find(|each| each.name() == name);
        let Some(function) = known else {
            let names: Vec<_> = Function::ALL.iter().map(|each| each.name()).collect();
            let error = SyntaxError::new(span, format!("there is no function `{name}`"));
            return Err(error.help(format!("functions: {}", names.join(" "))));
        };
        let (arguments, end) = self.arguments(")")?;
        let whole = span.start..end;
        let (least, most) = function.arity();
        if arguments.len() < least || arguments.len() > most {
            let wanted = match (least, most) {
                (1, 1) => "one argument",
                (2, 2) => "two arguments",
                (3, 3) => "three arguments",
                _ => "at least one argument",
            };
            return Err(SyntaxError::new(whole, format!("`{name}` takes {wanted}")));
        }
        Ok(Node {
            span: whole,
            op: Op::Call(function, arguments),
        })
    }
}

/// A value times or by a power of two.
fn shifted(op: Binary, value: Node<String>, by: Node<String>) -> Node<String> {
    let span = value.span.start..by.span.end;
    let two = Node {
        span: by.span.clone(),
        op: Op::Int(2),
    };
    let power = Node {
        span: by.span.clone(),
        op: Op::Binary(Binary::Power, Box::new(two), Box::new(by)),
    };
    Node {
        span,
        op: Op::Binary(op, Box::new(value), Box::new(power)),
    }
}

/// `a < b < c` means different things in different languages and is refused without brackets.
fn refuse_chain(left: &Node<String>, op: Binary, at: &Span) -> Result<(), SyntaxError> {
    match &left.op {
        Op::Binary(inner, first, _)
            if inner.is_comparison()
                && op.is_comparison()
                && first.span.start == left.span.start =>
        {
            let error = SyntaxError::new(at.clone(), "comparisons can't be chained");
            Err(error.help("write `a < b and b < c`"))
        }
        _ => Ok(()),
    }
}

fn unexpected(token: &Token, wanted: &str) -> SyntaxError {
    let found = match &token.kind {
        TokenKind::End => "the end".to_owned(),
        TokenKind::Int(_) | TokenKind::Float(_) => "a number".to_owned(),
        TokenKind::Text(_) => "a string".to_owned(),
        TokenKind::Name(name) => format!("`{name}`"),
        TokenKind::Symbol(symbol) => format!("`{symbol}`"),
    };
    SyntaxError::new(
        token.span.clone(),
        format!("{wanted} was expected here, not {found}"),
    )
}
