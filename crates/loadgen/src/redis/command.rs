//! Commands as the user writes them: words with placeholders.

use super::RedisPlan;
use crate::http::{Part, split};
use crate::keyspace::write_decimal;
use crate::weighted::weights;

/// Numbers of the placeholders that every command may have.
pub(super) const KEY: usize = 0;
pub(super) const VALUE: usize = 1;

/// Commands whose reply is a value for each key or field, or null where there is none.
const RETRIEVALS: [&str; 6] = ["get", "getex", "getdel", "mget", "hget", "hmget"];

/// A command with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisCommand {
    /// Its first word, in small letters.
    pub name: String,
    /// All of its words.
    pub(super) arguments: Vec<Vec<Part>>,
    /// Which of them the slot of a cluster follows from.
    pub(super) key_at: usize,
    pub(super) retrieves: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedisPlanError {
    #[error("`{text}` is not a mix; write it like `set=1,get=10`; --command takes other commands")]
    Mix { text: String },
    #[error(
        "`{text}` is not a command; write it like `LPUSH list:{{key}} {{value}}`, or with a weight \
         before it `3 INCR {{key}}`"
    )]
    Command { text: String },
    #[error("`{text}` ends inside a quotation")]
    Quotation { text: String },
    #[error("`{{{name}}}` is in no command")]
    Unused { name: String },
    #[error("`{{{name}}}` is given by the keys of the load; give --vary another name")]
    Taken { name: String },
}

impl RedisCommand {
    /// Reads a command, such as `LPUSH list:{key} {value}`, and its weight, a number before it. `names`
    /// are further placeholders.
    pub fn parse(text: &str, names: &[&str]) -> Result<(Self, f64), RedisPlanError> {
        let refuse = || RedisPlanError::Command { text: text.to_owned() };
        let mut words = words(text)?;
        let weight: Option<f64> = words.first().and_then(|word| word.parse().ok());
        if weight.is_some() {
            words.remove(0);
        }
        let weight = weight.unwrap_or(1.0);
        let name = words.first().filter(|name| !name.is_empty()).ok_or_else(refuse)?;
        let name = name.to_lowercase();
        if !(weight.is_finite() && weight > 0.0) || name.contains('{') {
            return Err(refuse());
        }
        let known: Vec<&str> = ["key", "value"].iter().chain(names).copied().collect();
        let arguments: Vec<_> = words.iter().map(|word| split(word.as_bytes(), &known)).collect();
        let has_key = |parts: &Vec<Part>| parts.contains(&Part::Placeholder(KEY));
        let key_at = arguments.iter().position(has_key).unwrap_or(1);
        let retrieves = RETRIEVALS.contains(&name.as_str());
        Ok((Self { name, arguments, key_at, retrieves }, weight))
    }

    /// `SET` of a key to its value.
    pub(super) fn set() -> Self {
        let (key, value) = (vec![Part::Placeholder(KEY)], vec![Part::Placeholder(VALUE)]);
        let arguments = vec![vec![Part::Literal(b"SET".to_vec())], key, value];
        Self { name: "set".to_owned(), arguments, key_at: 1, retrieves: false }
    }

    /// Reads a mix of `get` and `set`, such as `set=1,get=10`.
    pub fn parse_mix(text: &str) -> Result<Vec<(Self, f64)>, RedisPlanError> {
        let named = |name: &str| match name {
            "get" => Self::parse("GET {key}", &[]).ok().map(|(command, _)| command),
            "set" => Some(Self::set()),
            _ => None,
        };
        weights(text, Some(1.0), named).ok_or_else(|| RedisPlanError::Mix { text: text.to_owned() })
    }

    fn uses(&self, placeholder: usize) -> bool {
        self.arguments.iter().flatten().any(|part| *part == Part::Placeholder(placeholder))
    }
}

impl RedisPlan {
    /// Whether every placeholder of these names stands in a command.
    pub fn check(&self, names: &[&str]) -> Result<(), RedisPlanError> {
        for (number, name) in names.iter().enumerate() {
            if ["key", "value"].contains(name) {
                return Err(RedisPlanError::Taken { name: (*name).to_owned() });
            }
            if !self.commands.iter().any(|(command, _)| command.uses(VALUE + 1 + number)) {
                return Err(RedisPlanError::Unused { name: (*name).to_owned() });
            }
        }
        Ok(())
    }
}

/// Words parted by spaces; one with spaces stands in quotation marks, single or double.
fn words(text: &str) -> Result<Vec<String>, RedisPlanError> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(mark), _) if letter == mark => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err(RedisPlanError::Quotation { text: text.to_owned() });
    }
    words.extend(word);
    Ok(words)
}

/// A sign, a number and a line end: how many words there are, or bytes in one.
pub(super) fn write_head(sign: u8, number: usize, out: &mut Vec<u8>) {
    out.push(sign);
    write_decimal(out, number as u64, 1);
    out.extend_from_slice(b"\r\n");
}

/// One word of a command.
pub(super) fn write_argument(argument: &[u8], out: &mut Vec<u8>) {
    write_head(b'$', argument.len(), out);
    out.extend_from_slice(argument);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_words_with_a_weight_and_placeholders() {
        let (command, weight) =
            RedisCommand::parse("2.5 HSET user:{key} 'full name' \"a {n}\" ''", &["n"]).unwrap();
        assert_eq!((command.name.as_str(), weight), ("hset", 2.5));
        assert_eq!((command.arguments.len(), command.key_at), (5, 1));
        assert_eq!(command.arguments[2], [Part::Literal(b"full name".to_vec())]);
        assert!(command.uses(VALUE + 1) && !command.uses(VALUE));
        assert!(command.arguments[4].is_empty());
        let (eval, _) = RedisCommand::parse("EVAL 'return 1' 1 {key}", &[]).unwrap();
        assert_eq!(eval.key_at, 3);
        for wrong in ["", "7", "0 GET {key}", "GET 'a", "{key} 1"] {
            assert!(RedisCommand::parse(wrong, &[]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mix_has_get_and_set() {
        let mix = RedisCommand::parse_mix("set=1,get=10").unwrap();
        let names: Vec<&str> = mix.iter().map(|(command, _)| command.name.as_str()).collect();
        assert_eq!((names, mix[1].1), (vec!["set", "get"], 10.0));
        for wrong in ["", "del=1", "get=-1", "get=0", "get=1,get=2", "get=x"] {
            assert!(RedisCommand::parse_mix(wrong).is_err(), "{wrong}");
        }
    }
}
