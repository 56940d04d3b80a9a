//! Queries as trees.

use std::collections::BTreeMap;

use super::QueryError;
use crate::samples::NAME;

/// Deepest nesting; queries of people stay below ten.
const DEEPEST: usize = 50;

/// Most operators of one query: as deep is the tree of a chain of them.
const MOST_OPERATORS: usize = 200;

/// Longest window: a hundred years.
const LONGEST_MS: u64 = 100 * 365 * 86_400_000;

#[derive(Debug)]
pub(super) enum Expression {
    Number(f64),
    /// A number as a series without labels.
    Vector(f64),
    Selector(Vec<Matcher>),
    /// A function over a window in milliseconds.
    Over(Overtime, Vec<Matcher>, u64),
    Aggregate(Aggregate, Vec<String>, Box<Self>),
    /// The next whole number.
    Ceil(Box<Self>),
    Binary(Operator, Box<Self>, Box<Self>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overtime {
    Rate,
    Increase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregate {
    Sum,
    Count,
    Mean,
    Min,
    Max,
}

impl Aggregate {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sum" => Self::Sum,
            "count" => Self::Count,
            "avg" => Self::Mean,
            "min" => Self::Min,
            "max" => Self::Max,
            _ => return None,
        })
    }

    /// Of the values that are there; NaN of none.
    pub(super) fn of(self, values: &[f64]) -> f64 {
        if values.is_empty() {
            return f64::NAN;
        }
        match self {
            Self::Sum => values.iter().sum(),
            Self::Count => kendall_units::exact_f64(values.len() as u64),
            Self::Mean => kendall_stats::sample::mean(values),
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operator {
    pub(super) fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Or => a,
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide => a / b,
        }
    }

    pub(super) fn sign(self) -> char {
        match self {
            Self::Or => '|',
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
            Self::Divide => '/',
        }
    }
}

/// A condition on one label.
#[derive(Debug)]
pub(super) struct Matcher {
    pub(super) label: String,
    test: Test,
}

#[derive(Debug)]
enum Test {
    Is(String),
    IsNot(String),
    Like(regex::Regex),
    Unlike(regex::Regex),
}

impl Matcher {
    /// Whether a value, empty where there is none, meets it.
    pub(super) fn takes(&self, value: &str) -> bool {
        match &self.test {
            Test::Is(text) => value == text,
            Test::IsNot(text) => value != text,
            Test::Like(regex) => regex.is_match(value),
            Test::Unlike(regex) => !regex.is_match(value),
        }
    }
}

/// Reads a query.
pub(super) fn parse(query: &str) -> Result<Expression, QueryError> {
    let mut reader = Reader { rest: query, depth: 0, operators: 0 };
    let expression = reader.sum_or()?;
    reader.space();
    if !reader.rest.is_empty() {
        let word = reader.rest.split_whitespace().next().unwrap_or_default().to_owned();
        return Err(reader.fail(format!("`{word}` cannot be computed here")));
    }
    Ok(expression)
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
    operators: usize,
}

impl<'a> Reader<'a> {
    fn fail(&self, reason: impl Into<String>) -> QueryError {
        QueryError::Parse { reason: reason.into(), at: self.rest.chars().take(40).collect() }
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, sign: char) -> bool {
        self.space();
        let after = self.rest.strip_prefix(sign);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn expect(&mut self, sign: char) -> Result<(), QueryError> {
        if self.take(sign) { Ok(()) } else { Err(self.fail(format!("`{sign}` is missing"))) }
    }

    /// A name: of a metric, a function or a label.
    fn word(&mut self) -> &'a str {
        self.space();
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let end = self.rest.find(|c| !inside(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// Takes a word if it comes next.
    fn keyword(&mut self, expected: &str) -> bool {
        let before = self.rest;
        let found = self.word() == expected;
        if !found {
            self.rest = before;
        }
        found
    }

    fn sum_or(&mut self) -> Result<Expression, QueryError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.fail("it is nested too deep"));
        }
        let mut left = self.sum()?;
        while self.keyword("or") {
            let right = self.sum()?;
            left = self.binary(Operator::Or, left, right)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn binary(
        &mut self,
        operator: Operator,
        left: Expression,
        right: Expression,
    ) -> Result<Expression, QueryError> {
        self.operators += 1;
        if self.operators > MOST_OPERATORS {
            return Err(self.fail(format!("it has more than {MOST_OPERATORS} operators")));
        }
        Ok(Expression::Binary(operator, Box::new(left), Box::new(right)))
    }

    fn sum(&mut self) -> Result<Expression, QueryError> {
        let mut left = self.product()?;
        loop {
            let operator = if self.take('+') {
                Operator::Add
            } else if self.take('-') {
                Operator::Subtract
            } else {
                return Ok(left);
            };
            let right = self.product()?;
            left = self.binary(operator, left, right)?;
        }
    }

    fn product(&mut self) -> Result<Expression, QueryError> {
        let mut left = self.primary()?;
        loop {
            let operator = if self.take('*') {
                Operator::Multiply
            } else if self.take('/') {
                Operator::Divide
            } else {
                return Ok(left);
            };
            let right = self.primary()?;
            left = self.binary(operator, left, right)?;
        }
    }

    fn primary(&mut self) -> Result<Expression, QueryError> {
        self.space();
        if self.take('(') {
            let inner = self.sum_or()?;
            self.expect(')')?;
            return Ok(inner);
        }
        if self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.number().map(Expression::Number);
        }
        if self.rest.starts_with('{') {
            return Ok(Expression::Selector(self.matchers("")?));
        }
        let before = self.rest;
        let word = self.word();
        if word.is_empty() {
            let what =
                if self.rest.is_empty() { "there is nothing" } else { "this is not a query" };
            return Err(self.fail(what));
        }
        if let Some(how) = Aggregate::named(word) {
            return self.aggregate(how);
        }
        self.space();
        match (word, self.rest.starts_with('(')) {
            ("rate", true) => self.over(Overtime::Rate),
            ("increase", true) => self.over(Overtime::Increase),
            ("ceil", true) => {
                self.expect('(')?;
                let inner = self.sum_or()?;
                self.expect(')')?;
                Ok(Expression::Ceil(Box::new(inner)))
            }
            ("vector", true) => {
                self.expect('(')?;
                let number = self.number()?;
                self.expect(')')?;
                Ok(Expression::Vector(number))
            }
            (_, true) => {
                self.rest = before;
                Err(self.fail(format!("`{word}` cannot be computed here")))
            }
            (_, false) => {
                let matchers = self.matchers(word)?;
                self.space();
                if self.rest.starts_with('[') {
                    return Err(self.fail("a window is allowed in `rate` or `increase` only"));
                }
                Ok(Expression::Selector(matchers))
            }
        }
    }

    fn number(&mut self) -> Result<f64, QueryError> {
        self.space();
        let inside = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E');
        let end = self.rest.find(|c| !inside(c)).unwrap_or(self.rest.len());
        let number = self.rest[..end].parse().map_err(|_| self.fail("this is not a number"))?;
        self.rest = &self.rest[end..];
        Ok(number)
    }

    fn aggregate(&mut self, how: Aggregate) -> Result<Expression, QueryError> {
        let mut by = self.by()?;
        self.expect('(')?;
        let inner = self.sum_or()?;
        self.expect(')')?;
        if by.is_empty() {
            by = self.by()?;
        }
        Ok(Expression::Aggregate(how, by, Box::new(inner)))
    }

    fn by(&mut self) -> Result<Vec<String>, QueryError> {
        if self.keyword("without") {
            return Err(self.fail("`without` cannot be computed here"));
        }
        let mut labels = Vec::new();
        if self.keyword("by") {
            self.expect('(')?;
            while !self.take(')') {
                labels.push(self.word().to_owned());
                if !self.take(',') {
                    self.expect(')')?;
                    break;
                }
            }
        }
        Ok(labels)
    }

    fn over(&mut self, what: Overtime) -> Result<Expression, QueryError> {
        self.expect('(')?;
        let name = self.word();
        let matchers = self.matchers(name)?;
        if !self.take('[') {
            return Err(self.fail("a window such as `[1m]` is missing"));
        }
        let end = self.rest.find(']').ok_or_else(|| self.fail("`]` is missing"))?;
        let window_ms = duration_ms(self.rest[..end].trim())
            .ok_or_else(|| self.fail("this is not a duration such as `90s` or `1m`"))?;
        self.rest = &self.rest[end + 1..];
        self.expect(')')?;
        Ok(Expression::Over(what, matchers, window_ms))
    }

    fn matchers(&mut self, name: &str) -> Result<Vec<Matcher>, QueryError> {
        let mut matchers = Vec::new();
        if !name.is_empty() {
            matchers.push(Matcher { label: NAME.to_owned(), test: Test::Is(name.to_owned()) });
        }
        if self.take('{') {
            while !self.take('}') {
                matchers.push(self.matcher()?);
                if !self.take(',') {
                    self.expect('}')?;
                    break;
                }
            }
        }
        if matchers.is_empty() {
            return Err(self.fail("a metric is missing"));
        }
        Ok(matchers)
    }

    fn matcher(&mut self) -> Result<Matcher, QueryError> {
        let label = self.word().to_owned();
        self.space();
        let signs = ["=~", "!~", "!=", "="];
        let sign = signs.into_iter().find(|sign| self.rest.starts_with(sign));
        let sign = sign.ok_or_else(|| self.fail("a label's value is missing"))?;
        self.rest = &self.rest[sign.len()..];
        let text = self.quoted()?;
        let like = |text: &str| {
            let whole = format!("^(?s:{text})$");
            regex::Regex::new(&whole).map_err(|_| self.fail("this is not a regular expression"))
        };
        let test = match sign {
            "=~" => Test::Like(like(&text)?),
            "!~" => Test::Unlike(like(&text)?),
            "!=" => Test::IsNot(text),
            _ => Test::Is(text),
        };
        Ok(Matcher { label, test })
    }

    fn quoted(&mut self) -> Result<String, QueryError> {
        self.space();
        let quote = self.rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
        let quote = quote.ok_or_else(|| self.fail("a text in quotes is missing"))?;
        let mut value = String::new();
        let mut characters = self.rest[1..].char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                c if c == quote => {
                    self.rest = &self.rest[at + 2..];
                    return Ok(value);
                }
                '\\' if quote != '`' => match characters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other)) => value.push(other),
                    None => break,
                },
                other => value.push(other),
            }
        }
        Err(self.fail("a text in quotes does not end"))
    }
}

/// `1h30m`, `90s`, `500ms`.
fn duration_ms(text: &str) -> Option<u64> {
    let units: BTreeMap<&str, u64> = [
        ("ms", 1),
        ("s", 1_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
        ("w", 604_800_000),
    ]
    .into();
    let (mut rest, mut total) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: u64 = rest[..digits].parse().ok()?;
        let after = &rest[digits..];
        let unit = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        total = total.checked_add(count.checked_mul(*units.get(&after[..unit])?)?)?;
        rest = &after[unit..];
    }
    (1..=LONGEST_MS).contains(&total).then_some(total)
}
