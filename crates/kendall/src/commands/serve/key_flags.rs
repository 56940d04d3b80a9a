//! Flags of a tier from the keys of its file, so that each is declared once.

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use kendall_keys::{Form, Key, Need};
use toml::{Table, Value};

/// A key whose flag has another name, and what its value is called.
pub(super) type Named = (&'static str, &'static str, &'static str);

/// The flag of a key.
pub(super) fn name(key: &str, named: &[Named]) -> String {
    let other = named.iter().find(|(of, _, _)| *of == key);
    other.map_or_else(|| key.replace('_', "-"), |(_, name, _)| (*name).to_owned())
}

/// A flag for each key that is a value, and not a table.
pub(super) fn args(keys: &'static [Key], named: &'static [Named]) -> impl Iterator<Item = Arg> {
    keys.iter().filter(|key| is_value(key)).map(|key| {
        let arg = Arg::new(key.name).long(name(key.name, named)).help(sentence(key.help));
        let arg = match key.form {
            Form::Flag => arg.action(ArgAction::SetTrue),
            Form::Texts => arg.action(ArgAction::Append),
            Form::Choice(words) => arg.value_parser(PossibleValuesParser::new(words)),
            Form::Count { from, to } => {
                arg.value_name("N").value_parser(value_parser!(u64).range(from..=to))
            }
            Form::Quantity(quantity) => {
                arg.value_parser(|text: &str| (quantity.check)(text).map(|()| text.to_owned()))
            }
            _ => arg,
        };
        let arg = match named.iter().find(|(of, _, _)| *of == key.name) {
            Some((_, _, value)) => arg.value_name(*value),
            None if matches!(key.form, Form::Count { .. } | Form::Flag) => arg,
            None => arg.value_name(key.name.to_uppercase()),
        };
        match key.need {
            Need::Default(text) => arg.default_value(text.trim_matches('"')),
            Need::Required | Need::Optional => arg,
        }
    })
}

/// The table of a file that says what these flags say; not what they say by default, which the keys do themselves.
pub(super) fn table(keys: &[Key], flags: &ArgMatches) -> Table {
    let given = |key: &Key| flags.value_source(key.name) == Some(ValueSource::CommandLine);
    let values = keys.iter().filter(|key| is_value(key) && given(key));
    values.filter_map(|key| Some((key.name.to_owned(), value(key, flags)?))).collect()
}

fn value(key: &Key, flags: &ArgMatches) -> Option<Value> {
    Some(match key.form {
        Form::Flag => Value::Boolean(flags.get_flag(key.name)),
        Form::Count { .. } => {
            let count = *flags.get_one::<u64>(key.name)?;
            Value::Integer(i64::try_from(count).unwrap_or(i64::MAX))
        }
        Form::Texts => {
            let texts = flags.get_many::<String>(key.name)?;
            Value::Array(texts.map(|text| Value::String(text.clone())).collect())
        }
        _ => Value::String(flags.get_one::<String>(key.name)?.clone()),
    })
}

fn is_value(key: &Key) -> bool {
    matches!(
        key.form,
        Form::Text
            | Form::Flag
            | Form::Texts
            | Form::Choice(_)
            | Form::Count { .. }
            | Form::Quantity(_)
    )
}

fn sentence(help: &str) -> String {
    let mut letters = help.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
