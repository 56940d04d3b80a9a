//! Flags from the keys of files, so that each is declared once.

use std::any::TypeId;

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use kendall_keys::{Form, Key, Need};
use kendall_study::system::SYSTEMS;
use kendall_study::workload::PROTOCOLS;
use toml::{Table, Value};

/// A key whose flag has another name (its own is an alias), and what its value is called.
pub(super) type Named = (&'static str, &'static str, &'static str);

pub(super) fn name(key: &str, named: &[Named]) -> String {
    let other = named.iter().find(|(of, _, _)| *of == key);
    other.map_or_else(|| key.replace('_', "-"), |(_, name, _)| (*name).to_owned())
}

/// A flag for each key that is a value, and not a table.
pub(super) fn args(keys: &'static [Key], named: &'static [Named]) -> impl Iterator<Item = Arg> {
    keys.iter().filter(|key| is_value(key)).map(|key| {
        let arg = Arg::new(key.name).long(name(key.name, named));
        let arg = match key.form {
            Form::Flag => arg.action(ArgAction::SetTrue),
            Form::Texts => arg.action(ArgAction::Append),
            Form::Count { .. } => arg.value_name("N").value_parser(value_parser!(u64)),
            Form::Quantity(quantity) => {
                arg.value_parser(|text: &str| (quantity.check)(text).map(|()| text.to_owned()))
            }
            _ => arg,
        };
        let arg = match named.iter().find(|(of, _, _)| *of == key.name) {
            Some((_, other, value)) => {
                let own = key.name.replace('_', "-");
                let arg = if own == *other { arg } else { arg.alias(own) };
                arg.value_name(*value)
            }
            None if matches!(key.form, Form::Count { .. } | Form::Flag) => arg,
            None => arg.value_name(key.name.to_uppercase()),
        };
        as_declared(arg, key)
    })
}

/// What the keys of study files say of the flags of `serve` and `load`: those that have no help of their own.
pub(super) fn of_studies(command: Command) -> Command {
    let systems = SYSTEMS.iter().map(|kind| ("serve", kind.name, kind.keys));
    let loads = PROTOCOLS.iter().map(|protocol| ("load", protocol.name, protocol.keys));
    systems.chain(loads).fold(command, |command, (above, name, keys)| {
        let name = name.trim_start_matches("message-");
        let of_keys = |below: Command| match below.get_name() == name {
            true => keys.iter().fold(below, with_keys),
            false => below,
        };
        command.mut_subcommand(above, |above| above.mut_subcommands(of_keys))
    })
}

fn with_keys(command: Command, keys: &&'static [Key]) -> Command {
    command.mut_args(|arg| {
        let key = keys.iter().find(|key| key.name == arg.get_id().as_str());
        match key.filter(|_| arg.get_help().is_none()) {
            Some(key) => as_declared(arg, key),
            None => arg,
        }
    })
}

/// With the help, the default and the bounds of its key.
fn as_declared(arg: Arg, key: &'static Key) -> Arg {
    let arg = match key.form {
        Form::Choice(words) => arg.value_parser(PossibleValuesParser::new(words)),
        Form::Count { from, to } => bounded(arg, from, to),
        _ => arg,
    };
    let arg = arg.help(sentence(key.help));
    let text = match (key.form, key.need) {
        (Form::Flag, _) | (_, Need::Required | Need::Optional) => return arg,
        (Form::Count { .. }, Need::Default(text)) => text.replace('_', ""),
        (_, Need::Default(text)) => text.trim_matches(['"', '\'']).to_owned(),
    };
    arg.required(false).default_value(text)
}

fn bounded(arg: Arg, from: u64, to: u64) -> Arg {
    let of = arg.get_value_parser().type_id();
    let small = |number| u32::try_from(number).map_or(i64::from(u32::MAX), i64::from);
    if of == TypeId::of::<u32>() {
        arg.value_parser(value_parser!(u32).range(small(from)..=small(to)))
    } else if of == TypeId::of::<u64>() {
        arg.value_parser(value_parser!(u64).range(from..=to))
    } else {
        arg
    }
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
