//! Expressions of `\set` and `\if`: what pgbench's are, as far as numbers and truth values go.

use std::cmp::Ordering;

use kendall_tier::distribution::{index_below, unit_interval};
use kendall_units::{exact_f64, printable};
use rand_distr::Distribution as _;

use crate::random::Random;

/// Parentheses and signs inside one another.
const DEEPEST: usize = 50;

const MOST_OPERATORS: usize = 200;

/// Operators between two values, from those that bind least on. Of two with the same beginning, the longer comes first.
const OPERATORS: [&[&str]; 6] = [
    &["or"],
    &["and"],
    &["<=", ">=", "<>", "!=", "<", ">", "="],
    &["<<", ">>", "|", "#", "&"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// `not` binds less than what is there.
const COMPARISONS: usize = 2;

/// Letters of a wrong expression that an error shows.
const SHOWN: usize = 60;

/// The variable that hashes begin with.
pub(super) const DEFAULT_SEED: &str = "default_seed";

/// Limits of pgbench for the parameters of its distributions.
const LEAST_ZIPF: f64 = 1.001;
const MOST_ZIPF: f64 = 1000.0;
const LEAST_GAUSSIAN: f64 = 2.0;

/// What a variable is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Whole(i64),
    Real(f64),
    Truth(bool),
    Text(String),
    /// Of a column that no `\gset` has read yet.
    Unset,
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Real(number) => number.fmt(f),
            Self::Truth(truth) => truth.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Unset => Ok(()),
        }
    }
}

/// An expression, with its variables by number.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Value(Value),
    Variable(usize),
    Minus(Box<Self>),
    Not(Box<Self>),
    Two(&'static str, Box<(Self, Self)>),
    Call(Function, Vec<Self>),
    /// Conditions with their values, and the value where none holds.
    Case(Vec<(Self, Self)>, Box<Self>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Random,
    Exponential,
    Gaussian,
    Zipfian,
    Abs,
    Least,
    Greatest,
    Modulo,
    Murmur,
    Fnv,
    Whole,
    Real,
    Root,
    Exponent,
    Logarithm,
    Power,
    Pi,
    Permute,
}

impl Function {
    /// All of them, with the fewest and the most arguments.
    const ALL: [(&'static str, Self, usize, usize); 20] = [
        ("random", Self::Random, 2, 2),
        ("random_exponential", Self::Exponential, 3, 3),
        ("random_gaussian", Self::Gaussian, 3, 3),
        ("random_zipfian", Self::Zipfian, 3, 3),
        ("abs", Self::Abs, 1, 1),
        ("least", Self::Least, 1, 64),
        ("greatest", Self::Greatest, 1, 64),
        ("mod", Self::Modulo, 2, 2),
        ("hash", Self::Murmur, 1, 2),
        ("hash_murmur2", Self::Murmur, 1, 2),
        ("hash_fnv1a", Self::Fnv, 1, 2),
        ("int", Self::Whole, 1, 1),
        ("double", Self::Real, 1, 1),
        ("sqrt", Self::Root, 1, 1),
        ("exp", Self::Exponent, 1, 1),
        ("ln", Self::Logarithm, 1, 1),
        ("pow", Self::Power, 2, 2),
        ("power", Self::Power, 2, 2),
        ("pi", Self::Pi, 0, 0),
        ("permute", Self::Permute, 2, 3),
    ];
}

/// Reads an expression. `variable` knows the numbers of the variables.
pub(super) fn parse(
    text: &str,
    variable: &mut dyn FnMut(&str) -> Option<usize>,
) -> Result<Expression, String> {
    let mut parser = Parser { rest: text.trim(), variable, depth: 0, operators: 0 };
    let read = parser.joined(0).and_then(|expression| match parser.rest {
        "" => Ok(expression),
        rest => Err(not_understood(rest)),
    });
    read.map_err(|what| format!("`{}` {what}", printable(text.trim(), SHOWN)))
}

fn not_understood(rest: &str) -> String {
    format!("`{}` is not understood", printable(rest, SHOWN))
}

struct Parser<'a> {
    rest: &'a str,
    variable: &'a mut dyn FnMut(&str) -> Option<usize>,
    depth: usize,
    operators: usize,
}

impl<'a> Parser<'a> {
    /// Takes a sign, or a word in small or capital letters, if it is there.
    fn takes(&mut self, what: &str) -> bool {
        let Some((head, rest)) = self.rest.split_at_checked(what.len()) else { return false };
        let goes_on = what.starts_with(char::is_alphabetic) && rest.starts_with(is_inside_word);
        let is_there = head.eq_ignore_ascii_case(what) && !goes_on;
        if is_there {
            self.rest = rest.trim_start();
        }
        is_there
    }

    fn needs(&mut self, what: &str) -> Result<(), String> {
        if self.takes(what) { Ok(()) } else { Err(format!("a `{what}` is missing")) }
    }

    fn word(&mut self, is_inside: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|letter| !is_inside(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    /// Values with operators between them that bind as this level does or more.
    fn joined(&mut self, level: usize) -> Result<Expression, String> {
        let Some(operators) = OPERATORS.get(level) else { return self.nested(Self::single) };
        if level == COMPARISONS && self.takes("not") {
            let inside = self.nested(|parser| parser.joined(level))?;
            return Ok(Expression::Not(Box::new(inside)));
        }
        let mut left = self.joined(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.takes(operator)) {
            self.operators += 1;
            if self.operators > MOST_OPERATORS {
                return Err(format!("has more than {MOST_OPERATORS} operators"));
            }
            left = Expression::Two(operator, Box::new((left, self.joined(level + 1)?)));
        }
        Ok(left)
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Expression, String>,
    ) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("is nested more than {DEEPEST} deep"));
        }
        let inside = read(self);
        self.depth -= 1;
        inside
    }

    fn single(&mut self) -> Result<Expression, String> {
        if self.takes("-") {
            return Ok(Expression::Minus(Box::new(self.nested(Self::single)?)));
        }
        if self.takes("(") {
            let inside = self.joined(0)?;
            return self.needs(")").map(|()| inside);
        }
        if self.takes(":") {
            let name = self.word(is_inside_word);
            let number = (self.variable)(name);
            return number.map(Expression::Variable).ok_or_else(|| unknown_variable(name));
        }
        if self.rest.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
            let word = self.word(|letter| letter.is_ascii_alphanumeric() || letter == '.');
            let whole = word.parse().map(Value::Whole);
            let value = whole.or_else(|_| word.parse().map(Value::Real));
            let value =
                value.map_err(|_| format!("`{}` is not a number", printable(word, SHOWN)))?;
            return Ok(Expression::Value(value));
        }
        let name = self.word(is_inside_word).to_ascii_lowercase();
        match (name.as_str(), self.rest) {
            ("", "") => Err("ends where a value should be".to_owned()),
            ("", rest) => Err(not_understood(rest)),
            ("true" | "false", _) => Ok(Expression::Value(Value::Truth(name == "true"))),
            ("case", _) => self.case(),
            _ => self.call(&name),
        }
    }

    fn case(&mut self) -> Result<Expression, String> {
        let mut cases = Vec::new();
        while self.takes("when") {
            let condition = self.joined(0)?;
            self.needs("then")?;
            cases.push((condition, self.joined(0)?));
        }
        self.needs("else")?;
        let other = self.joined(0)?;
        self.needs("end")?;
        Ok(Expression::Case(cases, Box::new(other)))
    }

    fn call(&mut self, name: &str) -> Result<Expression, String> {
        let known = Function::ALL.iter().find(|known| known.0 == name);
        let Some((_, function, fewest, most)) = known else {
            let names = Function::ALL.map(|known| known.0).join(", ");
            let name = printable(name, SHOWN);
            return Err(format!("there is no function `{name}` here (there are {names})"));
        };
        if !self.takes("(") {
            return Err(format!("`{name}` needs its arguments in parentheses"));
        }
        let mut arguments = Vec::new();
        if *most > 0 {
            arguments.push(self.joined(0)?);
        }
        while self.takes(",") {
            arguments.push(self.joined(0)?);
        }
        self.needs(")")?;
        let is_seeded = matches!(function, Function::Murmur | Function::Fnv | Function::Permute);
        if is_seeded && arguments.len() == *fewest {
            let seed = (self.variable)(DEFAULT_SEED);
            let seed = seed.ok_or_else(|| unknown_variable(DEFAULT_SEED))?;
            arguments.push(Expression::Variable(seed));
        }
        if (*fewest..=*most).contains(&arguments.len()) {
            Ok(Expression::Call(*function, arguments))
        } else {
            Err(format!("`{name}` has {} arguments, and needs {fewest}", arguments.len()))
        }
    }
}

fn is_inside_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

pub(super) fn unknown_variable(name: &str) -> String {
    let name = printable(name, SHOWN);
    format!("`:{name}` is set nowhere before; set it with `\\set`, --vary or --define")
}

impl Expression {
    pub(super) fn value(&self, variables: &[Value], random: &mut Random) -> Result<Value, String> {
        match self {
            Self::Value(value) => Ok(value.clone()),
            Self::Variable(number) => numeric(&variables[*number]),
            Self::Minus(inside) => match inside.value(variables, random)? {
                Value::Whole(number) => {
                    number.checked_neg().map(Value::Whole).ok_or_else(too_large)
                }
                other => Ok(Value::Real(-real(&number(other)?))),
            },
            Self::Not(inside) => Ok(Value::Truth(!inside.holds(variables, random)?)),
            Self::Two(operator @ ("and" | "or"), both) => {
                // The second decides where the first does not.
                let left = both.0.holds(variables, random)?;
                let decides = left == (*operator == "or");
                let holds = if decides { left } else { both.1.holds(variables, random)? };
                Ok(Value::Truth(holds))
            }
            Self::Two(operator, both) => {
                let left = both.0.value(variables, random)?;
                two(operator, left, both.1.value(variables, random)?)
            }
            Self::Call(function, arguments) => {
                let value = |argument: &Self| argument.value(variables, random).and_then(number);
                let values: Result<Vec<Value>, String> = arguments.iter().map(value).collect();
                call(*function, &values?, random)
            }
            Self::Case(cases, other) => {
                for (condition, value) in cases {
                    if condition.holds(variables, random)? {
                        return value.value(variables, random);
                    }
                }
                other.value(variables, random)
            }
        }
    }

    /// Whether it is true, or a number other than 0.
    pub(super) fn holds(&self, variables: &[Value], random: &mut Random) -> Result<bool, String> {
        match self.value(variables, random)? {
            Value::Truth(truth) => Ok(truth),
            other => Ok(real(&number(other)?).abs() > 0.0),
        }
    }
}

fn too_large() -> String {
    "has a result beyond 64 bits".to_owned()
}

/// What a variable is where its text is a number or a truth value.
fn numeric(value: &Value) -> Result<Value, String> {
    match value {
        Value::Text(text) => {
            let whole = text.parse().map(Value::Whole);
            let value = whole.or_else(|_| text.parse().map(Value::Real));
            value.or_else(|_| text.parse().map(Value::Truth)).map_err(|_| no_number(text))
        }
        Value::Unset => Err("needs a variable that is not set there".to_owned()),
        other => Ok(other.clone()),
    }
}

/// Refuses what is no number.
fn number(value: Value) -> Result<Value, String> {
    if matches!(value, Value::Whole(_) | Value::Real(_)) {
        return Ok(value);
    }
    Err(no_number(&value.to_string()))
}

fn no_number(text: &str) -> String {
    format!("needs a number where it has `{}`", printable(text, SHOWN))
}

fn real(value: &Value) -> f64 {
    match value {
        Value::Whole(number) => {
            let size = nearest_f64(number.unsigned_abs());
            if *number < 0 { -size } else { size }
        }
        Value::Real(number) => *number,
        Value::Truth(_) | Value::Text(_) | Value::Unset => f64::NAN,
    }
}

/// The nearest number of 53 bits.
fn nearest_f64(number: u64) -> f64 {
    const HALF: f64 = 4_294_967_296.0; // 2^32
    exact_f64(number >> 32).mul_add(HALF, exact_f64(number & 0xFFFF_FFFF))
}

fn two(operator: &str, left: Value, right: Value) -> Result<Value, String> {
    let order = match (&left, &right) {
        (Value::Truth(left), Value::Truth(right)) => Some(left.cmp(right)),
        (Value::Whole(left), Value::Whole(right)) => Some(left.cmp(right)),
        _ => real(&left).partial_cmp(&real(&right)),
    };
    let holds = match operator {
        "=" => order.map(Ordering::is_eq),
        "<>" | "!=" => order.map(Ordering::is_ne),
        "<" => order.map(Ordering::is_lt),
        "<=" => order.map(Ordering::is_le),
        ">" => order.map(Ordering::is_gt),
        ">=" => order.map(Ordering::is_ge),
        _ => return calculated(operator, &number(left)?, &number(right)?),
    };
    let holds = holds.map(Value::Truth);
    holds.ok_or_else(|| format!("compares `{left}` with `{right}`"))
}

/// The result for two numbers.
fn calculated(operator: &str, left: &Value, right: &Value) -> Result<Value, String> {
    if let (Value::Whole(left), Value::Whole(right)) = (left, right) {
        if matches!(operator, "/" | "%") && *right == 0 {
            return Err("divides by zero".to_owned());
        }
        let places = u32::try_from(*right).ok();
        let result = match operator {
            "+" => left.checked_add(*right),
            "-" => left.checked_sub(*right),
            "*" => left.checked_mul(*right),
            "/" => left.checked_div(*right),
            "%" => left.checked_rem(*right),
            "<<" => places.and_then(|places| left.checked_shl(places)),
            ">>" => places.and_then(|places| left.checked_shr(places)),
            "|" => Some(left | right),
            "#" => Some(left ^ right),
            _ => Some(left & right),
        };
        return result.map(Value::Whole).ok_or_else(too_large);
    }
    let (left, right) = (real(left), real(right));
    let result = match operator {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" => left / right,
        "%" => left % right,
        _ => return Err(format!("has `{operator}`, which needs whole numbers")),
    };
    if result.is_finite() { Ok(Value::Real(result)) } else { Err(too_large()) }
}

fn call(function: Function, values: &[Value], random: &mut Random) -> Result<Value, String> {
    let by_size = |left: &&Value, right: &&Value| real(left).total_cmp(&real(right));
    let chosen = match function {
        Function::Abs => {
            return match &values[0] {
                Value::Whole(number) => {
                    number.checked_abs().map(Value::Whole).ok_or_else(too_large)
                }
                other => Ok(Value::Real(real(other).abs())),
            };
        }
        Function::Least => values.iter().min_by(by_size),
        Function::Greatest => values.iter().max_by(by_size),
        Function::Modulo => return calculated("%", &values[0], &values[1]),
        Function::Murmur => return hashed(murmur2, values),
        Function::Fnv => return hashed(fnv1a, values),
        Function::Permute => return permuted(values),
        Function::Whole => return whole(&values[0]).map(Value::Whole),
        Function::Real => return finite(real(&values[0])),
        Function::Root => return finite(real(&values[0]).sqrt()),
        Function::Exponent => return finite(real(&values[0]).exp()),
        Function::Logarithm => return finite(real(&values[0]).ln()),
        Function::Power => return finite(real(&values[0]).powf(real(&values[1]))),
        Function::Pi => return Ok(Value::Real(std::f64::consts::PI)),
        _ => return drawn(function, values, random).map(Value::Whole),
    };
    Ok(chosen.cloned().unwrap_or(Value::Whole(0)))
}

fn finite(result: f64) -> Result<Value, String> {
    if result.is_finite() {
        Ok(Value::Real(result))
    } else {
        Err("has no finite result".to_owned())
    }
}

/// The nearest whole number.
fn whole(value: &Value) -> Result<i64, String> {
    let number = match value {
        Value::Whole(number) => return Ok(*number),
        other => real(other).round_ties_even(),
    };
    let size = kendall_units::whole_u64(number.abs());
    let size = if number.abs() < 9.2e18 { i64::try_from(size).ok() } else { None };
    size.map(|size| if number < 0.0 { -size } else { size }).ok_or_else(too_large)
}

fn hashed(hash: fn(u64, u64) -> u64, values: &[Value]) -> Result<Value, String> {
    let (value, seed) = (whole(&values[0])?, whole(&values[1])?);
    Ok(Value::Whole(hash(value.cast_unsigned(), seed.cast_unsigned()).cast_signed()))
}

/// The place of a number below a size when these are in an order of the seed. The order is not that of pgbench,
/// which differs from version to version.
fn permuted(values: &[Value]) -> Result<Value, String> {
    const ROUNDS: u64 = 4;
    let (value, size, seed) = (whole(&values[0])?, whole(&values[1])?, whole(&values[2])?);
    if size < 1 {
        return Err(format!("has the size {size}; it is above 0"));
    }
    let size = size.cast_unsigned();
    let half = (u64::BITS - (size - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1 << half) - 1;
    // A Feistel network over the next power of 4, again and again until the place is below the size.
    let mut place = value.cast_unsigned() % size;
    loop {
        let (mut left, mut right) = (place >> half, place & mask);
        for round in 0..ROUNDS {
            let mixed = murmur2(right, seed.cast_unsigned().wrapping_add(round));
            (left, right) = (right, (left ^ mixed) & mask);
        }
        place = left << half | right;
        if place < size {
            return i64::try_from(place).map(Value::Whole).map_err(|_| too_large());
        }
    }
}

/// MurmurHash2 of 64 bits (variant A) of the eight bytes of a number.
fn murmur2(value: u64, seed: u64) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mixed = value.wrapping_mul(FACTOR);
    let mixed = (mixed ^ mixed >> SHIFT).wrapping_mul(FACTOR);
    let hash = (seed ^ FACTOR.wrapping_mul(8) ^ mixed).wrapping_mul(FACTOR);
    let hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

/// FNV-1a of 64 bits of the eight bytes of a number, the lowest first.
fn fnv1a(value: u64, seed: u64) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = value.to_le_bytes().into_iter();
    bytes.fold(BASIS ^ seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// A whole number from the first to the second, both included.
fn drawn(function: Function, values: &[Value], random: &mut Random) -> Result<i64, String> {
    let (Value::Whole(low), Value::Whole(high)) = (&values[0], &values[1]) else {
        return Err("needs whole numbers as bounds".to_owned());
    };
    let span = high.checked_sub(*low).and_then(|span| span.checked_add(1));
    let span = span.and_then(|span| usize::try_from(span).ok()).filter(|span| *span > 0);
    let span = span.ok_or_else(|| format!("has the bounds {low} and {high}: none lies between"))?;
    let parameter = values.get(2).map_or(0.0, real);
    let least = match function {
        Function::Zipfian => LEAST_ZIPF,
        Function::Gaussian => LEAST_GAUSSIAN,
        _ => f64::MIN_POSITIVE,
    };
    let is_zipf = function == Function::Zipfian;
    if function != Function::Random && !(parameter >= least && (!is_zipf || parameter <= MOST_ZIPF))
    {
        let most = if is_zipf { " to 1000" } else { "" };
        let least = if least < 1.0 { "above 0".to_owned() } else { format!("from {least}{most}") };
        return Err(format!("has the parameter {parameter}; it is {least}"));
    }
    let of_share = |share: f64| {
        let place = share * nearest_f64(span as u64);
        usize::try_from(kendall_units::whole_u64(place.floor())).unwrap_or(0).min(span - 1)
    };
    let place = match function {
        // Density falls as exp(−parameter·x) over [0, 1]: the inverse of its distribution function.
        Function::Exponential => {
            let rest = (-parameter).exp_m1();
            of_share(-(unit_interval(random) * rest).ln_1p() / parameter)
        }
        // A standard normal within ± parameter, stretched over the bounds.
        Function::Gaussian => loop {
            let normal: f64 = rand_distr::StandardNormal.sample(random);
            if normal.abs() < parameter {
                break of_share((normal / parameter + 1.0) / 2.0);
            }
        },
        Function::Zipfian => {
            let ranks = nearest_f64(span as u64);
            let zipf =
                rand_distr::Zipf::new(ranks, parameter).map_err(|error| error.to_string())?;
            let rank = kendall_units::whole_u64(zipf.sample(random));
            usize::try_from(rank).unwrap_or(span).clamp(1, span) - 1
        }
        _ => index_below(random, span),
    };
    i64::try_from(place).ok().and_then(|place| low.checked_add(place)).ok_or_else(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, stream};

    fn value(text: &str) -> Result<Value, String> {
        let known = ["scale", "name", DEFAULT_SEED];
        let mut variable = |name: &str| known.iter().position(|known| *known == name);
        let variables = [Value::Whole(10), Value::Text("7.5".to_owned()), Value::Whole(5432)];
        parse(text, &mut variable)?.value(&variables, &mut stream(1, Purpose::Requests, 0))
    }

    #[test]
    fn numbers_are_calculated_as_pgbench_does() {
        for (text, expected) in [
            ("1 + 2 * 3", Value::Whole(7)),
            ("(1 + 2) * -3", Value::Whole(-9)),
            ("100000 * :scale", Value::Whole(1_000_000)),
            ("7 / 2 % 2", Value::Whole(1)),
            ("7 / 2.0", Value::Real(3.5)),
            (":name - 0.5", Value::Real(7.0)),
            ("abs(-4) + least(3, 2) + greatest(1, :scale)", Value::Whole(16)),
            ("random(5, 5)", Value::Whole(5)),
            ("1 + 1 << 2 | 1", Value::Whole(9)),
            ("NOT 1 > 2 AND 7 & 3 = 3 OR 1 / 0 = 1", Value::Truth(true)),
            ("1 <> 1.5 and 2 >= 2", Value::Truth(true)),
            ("true = (1 != 1)", Value::Truth(false)),
            (
                "case when :scale < 5 then 1 when :scale < 20 then 2 else 1 / 0 end * 3",
                Value::Whole(6),
            ),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_calculated_says_why() {
        let deep = "(".repeat(60) + "1" + &")".repeat(60);
        let long = "1+".repeat(300_000) + "1";
        for (text, said) in [
            ("", "ends where"),
            ("1 +", "ends where"),
            ("1 2", "`2` is not understood"),
            ("1 / 0", "divides by zero"),
            ("9223372036854775807 + 1", "beyond 64 bits"),
            (":unknown", "`:unknown` is set nowhere"),
            ("debug(1)", "no function `debug`"),
            ("permute(1, 0)", "it is above 0"),
            ("random(1)", "1 arguments, and needs 2"),
            ("random(2, 1)", "none lies between"),
            ("random_zipfian(1, 10, 1)", "parameter 1; it is from 1.001 to 1000"),
            ("random_gaussian(1, 10, 1.5)", "it is from 2"),
            ("random_exponential(1, 10, 0)", "it is above 0"),
            ("random(1, 2", "a `)` is missing"),
            ("1.2.3", "not a number"),
            (&deep, "nested more than"),
            (&"not ".repeat(60), "nested more than"),
            (&long, "has more than 200 operators"),
            ("1 < true", "compares `1` with `true`"),
            ("1 + (2 > 1)", "needs a number where it has `true`"),
            ("1.5 & 1", "needs whole numbers"),
            ("1 << 64", "beyond 64 bits"),
            ("case when 1 then 2 end", "a `else` is missing"),
            ("sqrt(-1)", "no finite result"),
            ("int(1e19)", "beyond 64 bits"),
            ("int(pow(10, 19))", "beyond 64 bits"),
            ("mod(1, 0)", "divides by zero"),
            ("pi(1)", "a `)` is missing"),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_permutation_has_every_number_once_in_another_order() {
        for size in [1, 2, 3, 17, 256, 1_000] {
            let places: Vec<i64> = (0..size)
                .map(|number| match value(&format!("permute({number}, {size}, 7)")) {
                    Ok(Value::Whole(place)) => place,
                    other => panic!("{other:?}"),
                })
                .collect();
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..size), "{size}");
            assert!(size < 17 || !places.into_iter().eq(0..size), "{size}");
        }
        assert_eq!(value("permute(1003, 1000)"), value("permute(3, 1000)"));
    }

    /// Of 10,000 draws of 1 to 10. Uniform: each has 1,000 ± 4·√900 = 120. Zipf of exponent 1.5: the first has the
    /// share 1/Σk^−1.5 = 1/1.9953 = 0.5012. Exponential of parameter 5: the first tenth has
    /// (1 − e^−0.5)/(1 − e^−5) = 0.3961. Gaussian of parameter 2.5: the fifth and sixth tenth lie within half a
    /// deviation, erf(0.5/√2)/erf(2.5/√2) = 0.3829/0.9876 = 0.3877. Four deviations of a binomial are 200 at most.
    #[test]
    fn draws_have_the_shares_of_their_distribution() {
        let mut random = stream(7, Purpose::Requests, 0);
        let mut counts = |text: &str| {
            let expression = parse(text, &mut |_| None).unwrap();
            let mut counts = [0_i32; 10];
            for _ in 0..10_000 {
                let Ok(Value::Whole(drawn)) = expression.value(&[], &mut random) else { panic!() };
                counts[usize::try_from(drawn - 1).unwrap()] += 1;
            }
            counts
        };
        assert!(counts("random(1, 10)").iter().all(|count| (count - 1_000).abs() < 120));
        assert!((counts("random_zipfian(1, 10, 1.5)")[0] - 5_012).abs() < 200);
        assert!((counts("random_exponential(1, 10, 5)")[0] - 3_961).abs() < 200);
        let gaussian = counts("random_gaussian(1, 10, 2.5)");
        assert!((gaussian[4] + gaussian[5] - 3_877).abs() < 200, "{gaussian:?}");
    }
}
