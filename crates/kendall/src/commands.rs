//! The command line: one module a command, and one line here.

/// Commands of one level, each of which runs.
macro_rules! commands {
    ($(#[$of:meta])* $name:ident { $($(#[$about:meta])* $command:ident($flags:ty),)+ }) => {
        $(#[$of])*
        #[derive(Debug, clap::Subcommand)]
        enum $name {
            $($(#[$about])* $command($flags),)+
        }

        impl $name {
            fn run(self) -> anyhow::Result<$crate::exit::Exit> {
                match self {
                    $(Self::$command(command) => command.run(),)+
                }
            }
        }
    };
}

mod compare;
mod completions;
mod console;
mod demo;
mod design;
mod export;
mod fit;
mod guards;
mod init;
mod key_flags;
mod load;
mod observe;
mod predict;
mod queue;
mod report;
mod run;
mod schema;
mod serve;
mod solve;
mod version;

#[doc(hidden)]
#[cfg(feature = "fuzzing")]
pub use init::fuzzing;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use crate::exit::Exit;
use crate::output;
use crate::terminal::{self, Stream};

const MOST_COLUMNS: u16 = 80;

/// What one begins with.
const EXAMPLES: &str = "Examples:\n  \
    kendall demo\n  \
    kendall init -- gunicorn -b {address} app:app\n  \
    kendall run studies/processes/nginx.toml\n  \
    kendall load http http://127.0.0.1:8080/ --rate 2000/s --duration 10s\n  \
    kendall serve queue --listen 127.0.0.1:7070\n  \
    kendall solve --help";

/// Measures a multi-tier service, models it as a network of queues, and predicts what it will do
/// next.
#[derive(Debug, Parser)]
#[command(
    name = "kendall",
    version,
    arg_required_else_help = true,
    max_term_width = 80,
    disable_version_flag = true
)]
pub(crate) struct Kendall {
    /// Print version; with --verbose also build, formats and machine
    #[arg(id = "version", long = "version", short = 'V', action = clap::ArgAction::Version)]
    _version: Option<bool>,
    #[command(subcommand)]
    command: Command,
}

commands! {
    #[allow(
        clippy::large_enum_variant,
        reason = "one value a process, read once; it hangs on all flags"
    )]
    Command {
        Demo(demo::Demo),
        Init(init::Init),
        Run(run::RunCommand),
        Compare(compare::Compare),
        #[command(flatten)]
        Calculation(Calculation),
        Load(load::Load),
        Observe(observe::Observe),
        Console(console::ConsoleCommand),
        Serve(serve::Serve),
        Queue(queue::Queue),
        Schema(schema::Schema),
        Completions(completions::Completions),
        Agent(guards::Agent),
        Guard(guards::Guard),
        Reaper(guards::Reaper),
    }
}

commands! {
    /// What starts no process: other programs have it in themselves.
    Calculation {
        Report(report::ReportCommand),
        Export(export::Export),
        Predict(predict::Predict),
        Solve(Box<solve::Solve>),
        Fit(fit::Fit),
        Design(design::Design),
    }
}

/// The command line of [`calculate`].
#[derive(Debug, Parser)]
#[command(name = "kendall", version)]
struct Calculator {
    #[command(subcommand)]
    command: Calculation,
}

/// Why [`calculate`] has no answer.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// With which the program would end.
    pub exit_code: u8,
    pub message: String,
}

/// What a command prints that starts no process: `report`, `export`, `predict`, `solve`, `fit` or `design`, and whether
/// all that it checks holds.
///
/// # Errors
/// What the program would print as an error, with its exit code.
pub fn calculate(arguments: &[String]) -> Result<(String, bool), Refusal> {
    let words = std::iter::once("kendall").chain(arguments.iter().map(String::as_str));
    let calculator = Calculator::try_parse_from(words).map_err(|refusal| {
        let text = refusal.to_string();
        let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned();
        Refusal { exit_code: Exit::Refused as u8, message }
    })?;
    let (outcome, printed) = output::kept(|| calculator.command.run());
    match outcome {
        Ok(exit) => Ok((printed, exit == Exit::Done)),
        Err(error) => {
            Err(Refusal { exit_code: Exit::of(&error) as u8, message: output::message(&error) })
        }
    }
}

impl Kendall {
    /// The arguments of this process, or what to tell the user instead.
    pub(crate) fn from_arguments() -> Result<Self, clap::Error> {
        let matches = Self::described().try_get_matches();
        Self::from_arg_matches(&matches.map_err(run::with_the_flag_for_keys)?)
    }

    /// What `--version --verbose` asks for, if these are the arguments.
    pub(crate) fn version_in_detail() -> Option<String> {
        let mut words: Vec<String> = std::env::args().skip(1).take(3).collect();
        words.sort();
        (words == ["--verbose", "--version"]).then(version::details)
    }

    /// The command line, with examples and exit codes: of help and manual pages alike.
    pub(crate) fn described() -> clap::Command {
        let codes = Exit::ALL.map(|(exit, text)| format!("  {}  {text}", exit as u8)).join("\n");
        let command = key_flags::of_studies(Self::command()).after_help(EXAMPLES);
        // The library looks at the terminal first.
        let columns = terminal::columns(Stream::Result).unwrap_or(MOST_COLUMNS).min(MOST_COLUMNS);
        let columns = usize::from(columns);
        with_codes(command.term_width(columns), &format!("Exit codes:\n{codes}"), columns)
    }

    /// Whether it is a server, which others wait for.
    pub(crate) fn serves(&self) -> bool {
        match &self.command {
            Command::Serve(serve) => !serve.needs_one_thread(),
            command => matches!(command, Command::Console(_)),
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        self.command.run()
    }
}

/// The same exit codes in the long help of every command: each may end with any of them. Examples fit the columns.
fn with_codes(command: clap::Command, codes: &str, columns: usize) -> clap::Command {
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = folded(&examples, columns);
    command
        .after_long_help(format!("{examples}\n\n{codes}"))
        .after_help(examples)
        .mut_subcommands(|below| with_codes(below, codes, columns))
}

/// Long examples, which are indented, on several lines, as a shell continues a command.
fn folded(help: &str, columns: usize) -> String {
    let mut lines = Vec::new();
    for line in help.split('\n') {
        if !line.starts_with("  ") || line.chars().count() <= columns {
            lines.push(line.to_owned());
            continue;
        }
        let mut part = String::new();
        let parts = words(line.trim_start()).into_iter().flat_map(|word| {
            // A flag whose value leaves no room for four spaces and the backslash stands by itself.
            let is_long = word.starts_with('-') && word.chars().count() + 6 > columns;
            word.splitn(1 + usize::from(is_long), ' ')
        });
        for word in parts {
            // Two for the backslash, and for what stands before the first word.
            if !part.is_empty() && part.chars().count() + word.chars().count() + 3 > columns {
                lines.push(format!("{part} \\"));
                part.clear();
                part.push_str("    ");
            } else {
                part.push_str(if part.is_empty() { "  " } else { " " });
            }
            part.push_str(word);
        }
        lines.push(part);
    }
    lines.join("\n")
}

/// The words of a command, quotes and what is in them left together; a flag with its value.
fn words(command: &str) -> Vec<&str> {
    let (mut words, mut start, mut quote) = (Vec::new(), 0, None);
    for (at, c) in command.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == ' ' => {
                let is_flag =
                    command[start..at].starts_with('-') && !command[start..at].contains([' ', '=']);
                let before_value = is_flag && !command[at + 1..].starts_with('-');
                if !before_value {
                    words.push(&command[start..at]);
                    start = at + 1;
                }
            }
            _ => {}
        }
    }
    words.push(&command[start..]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What clap finds wrong with the arguments (two of one name, a default that does not parse), of
    /// every command; and an example for each.
    #[test]
    fn every_command_is_well_formed_and_has_an_example() {
        Kendall::described().debug_assert();
        fn look(command: &clap::Command, path: &str) {
            let path = format!("{path}{}", command.get_name());
            if !command.is_hide_set() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "`{path} --help` has no example");
                let usage = command.clone().bin_name(&path).render_usage().to_string();
                let longest = usage.lines().map(|line| line.chars().count()).max().unwrap_or(0);
                assert!(longest <= usize::from(MOST_COLUMNS), "{usage}");
                for argument in
                    command.get_arguments().filter(|argument| argument.is_required_set())
                {
                    let name = argument.get_long().unwrap_or(argument.get_id().as_str());
                    let named = usage.to_lowercase().contains(name);
                    assert!(named || argument.is_positional(), "{usage} lacks {name}");
                }
            }
            for below in command.get_subcommands() {
                look(below, &format!("{path} "));
            }
        }
        look(&Kendall::described(), "");
    }

    /// An example that is wrapped in the midst cannot be copied.
    #[test]
    fn examples_are_folded_as_a_shell_continues_them() {
        let long = "Examples:\n  kendall load http 'http://a/?b=c d' --rate 250/s --clients 3\n  kendall demo";
        let expected = "Examples:\n  kendall load http \\\n    'http://a/?b=c d' \\\n    --rate 250/s \\\n    --clients 3\n  \
                        kendall demo";
        assert_eq!(folded(long, 24), expected);
        let long_value = "  kendall run a --set measure.duration=3s";
        assert_eq!(folded(long_value, 24), "  kendall run a --set \\\n    measure.duration=3s");
        fn look(command: &clap::Command) {
            for help in [command.get_after_help(), command.get_after_long_help()] {
                let help = help.map(ToString::to_string).unwrap_or_default();
                for line in help.lines().filter(|line| line.starts_with("  kendall ")) {
                    assert!(line.chars().count() <= usize::from(MOST_COLUMNS), "{line}");
                }
            }
            command.get_subcommands().for_each(look);
        }
        look(&Kendall::described());
    }

    /// One list of exit codes: in every command's long help, and in the documents.
    #[test]
    fn exit_codes_are_the_same_everywhere() {
        fn look(command: &clap::Command) {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            for (exit, text) in Exit::ALL {
                let line = format!("  {}  {text}", exit as u8);
                assert!(help.contains(&line), "`{} --help` lacks `{line}`", command.get_name());
            }
            command.get_subcommands().for_each(look);
        }
        look(&Kendall::described());
        let documents = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for document in ["README.md", "docs/study-files.md"] {
            let text = std::fs::read_to_string(documents.join(document)).unwrap();
            for (exit, text_of) in Exit::ALL {
                let row = format!("| {} | {text_of} |", exit as u8);
                assert!(text.contains(&row), "{document} lacks `{row}`");
            }
        }
    }
}
