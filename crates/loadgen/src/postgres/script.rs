//! Transactions as the user writes them: SQL with `:name` for parameters, and what pgbench's scripts
//! have of `\set` and `\sleep`.

use super::expression::{self, Expression, Value};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{script}, line {line}: {what}")]
pub struct ScriptError {
    pub script: String,
    pub line: usize,
    pub what: String,
}

/// One transaction: what is one request of the load.
#[derive(Debug, Clone)]
pub struct Script {
    /// The file's name, or what it is called in the result.
    pub name: String,
    pub weight: f64,
    pub(super) steps: Vec<Step>,
    /// Names of its variables: those that are given come first.
    variables: Vec<String>,
}

/// One step and its line in the script.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) does: Does,
}

#[derive(Debug, Clone)]
pub(super) enum Does {
    Set(usize, Expression),
    /// How long, and how many nanoseconds its unit has.
    Sleep(Expression, i64),
    Statement(Statement),
}

/// SQL with `$1`, `$2`, …, and the variables that stand for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) parameters: Vec<usize>,
}

/// What is left to do once the variables are drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Sleep(u64),
    /// The number of the statement, and its parameters.
    Execute(usize, Vec<String>),
}

/// A part of a script: SQL up to its semicolon, or a line with a backslash.
struct Piece<'a> {
    line: usize,
    text: &'a str,
    is_command: bool,
}

impl Script {
    /// Reads a script. `given` are the variables that every script has.
    ///
    /// # Errors
    /// [`ScriptError`] for a command or an expression that is not supported, an unknown variable, and a
    /// script without a statement.
    pub fn parse(
        (name, weight): (&str, f64),
        text: &str,
        given: &[String],
    ) -> Result<Self, ScriptError> {
        let variables = given.to_vec();
        let mut script = Self { name: name.to_owned(), weight, steps: Vec::new(), variables };
        let refuse = |line, what| ScriptError { script: name.to_owned(), line, what };
        for piece in pieces(text).map_err(|(line, what)| refuse(line, what))? {
            let does = if piece.is_command {
                script.command(piece.text)
            } else {
                script.statement(piece.text).map(Does::Statement)
            };
            let does = does.map_err(|what| refuse(piece.line, what))?;
            script.steps.push(Step { line: piece.line, does });
        }
        if script.statements().next().is_none() {
            return Err(refuse(1, "has no SQL statement".to_owned()));
        }
        Ok(script)
    }

    /// Its statements, each with its line.
    pub(super) fn statements(&self) -> impl Iterator<Item = (usize, &Statement)> {
        self.steps.iter().filter_map(|step| match &step.does {
            Does::Statement(statement) => Some((step.line, statement)),
            _ => None,
        })
    }

    /// Draws what one request does. `given` are the values of the given variables.
    ///
    /// # Errors
    /// [`ScriptError`] for an expression that has no value, such as a division by zero.
    pub(super) fn draw(
        &self,
        given: &mut Vec<Value>,
        random: &mut crate::random::Random,
        actions: &mut Vec<Action>,
    ) -> Result<(), ScriptError> {
        let variables = given;
        variables.resize(self.variables.len(), Value::Whole(0));
        actions.clear();
        let mut statements = 0;
        for step in &self.steps {
            let refuse = |what| ScriptError { script: self.name.clone(), line: step.line, what };
            match &step.does {
                Does::Set(number, expression) => {
                    variables[*number] = expression.value(variables, random).map_err(refuse)?;
                }
                Does::Sleep(expression, unit) => {
                    let time = expression.value(variables, random).map_err(refuse)?;
                    let time = match time {
                        Value::Whole(time) => time.checked_mul(*unit),
                        _ => None,
                    };
                    let time = time.and_then(|time| u64::try_from(time).ok());
                    let time = time.ok_or_else(|| {
                        refuse("`\\sleep` needs a whole number that is not negative".to_owned())
                    })?;
                    actions.push(Action::Sleep(time));
                }
                Does::Statement(statement) => {
                    let of = |number: &usize| variables[*number].to_string();
                    let parameters = statement.parameters.iter().map(of).collect();
                    actions.push(Action::Execute(statements, parameters));
                    statements += 1;
                }
            }
        }
        Ok(())
    }

    fn variable(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|known| known == name)
    }

    fn command(&mut self, text: &str) -> Result<Does, String> {
        // A backslash at the end of a line continues it.
        let text = &text.replace("\\\n", " ");
        let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match command {
            "\\set" => {
                let form = || "write it like `\\set id random(1, 1000)`".to_owned();
                let (name, expression) =
                    rest.trim_start().split_once(char::is_whitespace).ok_or_else(form)?;
                if !name.starts_with(is_first) || !name.chars().all(is_more) {
                    return Err(format!("`{name}` is not a name: {}", form()));
                }
                let known = |name: &str| self.variable(name);
                let expression = expression::parse(expression, &known)
                    .map_err(|what| format!("`{}` {what}", expression.trim()))?;
                let number = self.variable(name).unwrap_or_else(|| {
                    self.variables.push(name.to_owned());
                    self.variables.len() - 1
                });
                Ok(Does::Set(number, expression))
            }
            "\\sleep" => {
                let (time, unit) =
                    rest.trim().split_once(char::is_whitespace).unwrap_or((rest, "s"));
                let unit = match unit.trim() {
                    "us" => 1_000,
                    "ms" => 1_000_000,
                    "s" => 1_000_000_000,
                    unit => return Err(format!("`{unit}` is not a unit; write us, ms or s")),
                };
                let time = expression::parse(time, &|name| self.variable(name))
                    .map_err(|what| format!("`{}` {what}", time.trim()))?;
                Ok(Does::Sleep(time, unit))
            }
            other => Err(format!(
                "`{other}` is not supported here; `\\set` and `\\sleep` are. What branches or needs results of \
                 queries is a program of your own (docs/load.md)"
            )),
        }
    }

    /// `:name` outside of quotations becomes a parameter.
    fn statement(&self, text: &str) -> Result<Statement, String> {
        let mut statement = Statement { sql: String::new(), parameters: Vec::new() };
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let literal = skipped(rest).map_err(str::to_owned)?;
            if literal > 0 || !rest.starts_with(':') {
                let bytes = literal.max(first.len_utf8());
                statement.sql.push_str(&rest[..bytes]);
                rest = &rest[bytes..];
                continue;
            }
            let colons = rest.len() - rest.trim_start_matches(':').len();
            let after = &rest[colons..];
            let end = after.find(|letter| !is_more(letter)).unwrap_or(after.len());
            if colons > 1 || !after.starts_with(is_first) {
                statement.sql.push_str(&rest[..colons]);
                rest = after;
                continue;
            }
            let name = &after[..end];
            let number = self.variable(name).ok_or_else(|| expression::unknown_variable(name))?;
            let place = statement.parameters.iter().position(|known| *known == number);
            let place = place.unwrap_or_else(|| {
                statement.parameters.push(number);
                statement.parameters.len() - 1
            });
            statement.sql.push_str(&format!("${}", place + 1));
            rest = &after[end..];
        }
        Ok(statement)
    }
}

fn is_first(letter: char) -> bool {
    letter.is_ascii_alphabetic() || letter == '_'
}

fn is_more(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Bytes of a quotation or a comment that a text begins with; 0 where it begins with neither.
fn skipped(text: &str) -> Result<usize, &'static str> {
    let ended = |open: usize, close: &str, what| {
        text[open..].find(close).map(|at| open + at + close.len()).ok_or(what)
    };
    if text.starts_with("--") {
        return Ok(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return ended(2, "*/", "a comment has no end");
    }
    if text.starts_with('\'') {
        return ended(1, "'", "a `'` has no end");
    }
    if text.starts_with('"') {
        return ended(1, "\"", "a `\"` has no end");
    }
    let Some(after) = text.strip_prefix('$') else { return Ok(0) };
    let tag = after.find(|letter| !is_more(letter)).unwrap_or(after.len());
    if !after[tag..].starts_with('$') || after.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(0);
    }
    let quotation = &text[..tag + 2];
    ended(quotation.len(), quotation, "a dollar quotation has no end")
}

/// Takes a script apart; the error has its line.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>, (usize, String)> {
    let mut pieces = Vec::new();
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    let mut begin = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let bytes = skipped(rest).map_err(|what| (line_of(at), what.to_owned()))?;
        let letter = rest.chars().next().map_or(1, char::len_utf8);
        let has_begun = !is_blank(&text[begin..at]);
        if bytes > 0 {
            at += bytes;
        } else if rest.starts_with('\\') {
            let ends = |(at, _): &(usize, &str)| !rest[..*at].ends_with('\\');
            let end = rest.match_indices('\n').find(ends).map_or(rest.len(), |(at, _)| at);
            let end = at + end;
            let command = text[at..end].trim();
            if has_begun {
                let what =
                    format!("`{command}` is not supported inside a statement; end it with `;`");
                return Err((line_of(at), what));
            }
            pieces.push(Piece { line: line_of(at), text: command, is_command: true });
            (at, begin) = (end, end);
        } else if rest.starts_with(';') {
            if has_begun {
                pieces.push(statement_at(text, begin, at, line_of));
            }
            at += 1;
            begin = at;
        } else {
            at += letter;
        }
    }
    if !is_blank(&text[begin..]) {
        pieces.push(statement_at(text, begin, text.len(), line_of));
    }
    Ok(pieces)
}

fn statement_at(
    text: &str,
    begin: usize,
    end: usize,
    line_of: impl Fn(usize) -> usize,
) -> Piece<'_> {
    let piece = &text[begin..end];
    let space = piece.len() - piece.trim_start().len();
    Piece { line: line_of(begin + space), text: piece.trim(), is_command: false }
}

/// Nothing but space and comments.
fn is_blank(text: &str) -> bool {
    let mut rest = text.trim_start();
    while rest.starts_with("--") || rest.starts_with("/*") {
        let bytes = skipped(rest).unwrap_or(rest.len());
        rest = rest[bytes..].trim_start();
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, stream};

    fn parse(text: &str) -> Result<Script, String> {
        let given = ["scale".to_owned(), "id".to_owned()];
        Script::parse(("a.sql", 1.0), text, &given).map_err(|error| error.to_string())
    }

    /// The statements of pgbench's own script, as its manual prints it.
    #[test]
    fn a_script_of_pgbench_is_a_transaction() {
        let script = parse(
            "\\set aid random(1, 100000 * :scale)\n\\set delta random(5, 5)\n-- a comment; with a semicolon\n\
             BEGIN;\nUPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n\
             \\sleep 2 ms\nSELECT abalance FROM pgbench_accounts\n  WHERE aid = :aid AND filler <> ':aid; ';\nEND;\n",
        )
        .unwrap();
        let statements: Vec<(usize, &str)> =
            script.statements().map(|(line, statement)| (line, statement.sql.as_str())).collect();
        assert_eq!(
            statements,
            [
                (3, "-- a comment; with a semicolon\nBEGIN"),
                (5, "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2"),
                (
                    7,
                    "SELECT abalance FROM pgbench_accounts\n  WHERE aid = $1 AND filler <> ':aid; '"
                ),
                (9, "END"),
            ]
        );
        let mut values = vec![Value::Whole(10), Value::Text("x".to_owned())];
        let mut actions = Vec::new();
        let mut random = stream(1, Purpose::Requests, 0);
        script.draw(&mut values, &mut random, &mut actions).unwrap();
        let aid: i64 = match &actions[1] {
            Action::Execute(1, parameters) if parameters[0] == "5" => {
                parameters[1].parse().unwrap()
            }
            other => panic!("{other:?}"),
        };
        assert!((1..=1_000_000).contains(&aid));
        assert_eq!(actions[0], Action::Execute(0, vec![]));
        assert_eq!(actions[2], Action::Sleep(2_000_000));
        assert_eq!(actions[3], Action::Execute(2, vec![aid.to_string()]));
    }

    #[test]
    fn casts_quotations_and_slices_are_no_parameters() {
        for (text, sql) in [
            ("SELECT :id::text, a[1:2]", "SELECT $1::text, a[1:2]"),
            (
                "SELECT ':id', \":id\", $$:id;$$, $a$:id$a$",
                "SELECT ':id', \":id\", $$:id;$$, $a$:id$a$",
            ),
            ("SELECT :id /* :id; */ + :scale + :id", "SELECT $1 /* :id; */ + $2 + $1"),
            ("SELECT 'it''s', :id", "SELECT 'it''s', $1"),
        ] {
            let script = parse(text).unwrap();
            assert_eq!(script.statements().next().unwrap().1.sql, sql);
        }
    }

    #[test]
    fn what_is_not_supported_is_named_with_its_line() {
        for (text, said) in [
            ("SELECT 1;\n\\if 1\n", "a.sql, line 2: `\\if` is not supported here"),
            (
                "SELECT 1 AS x \\gset\n",
                "a.sql, line 1: `\\gset` is not supported inside a statement",
            ),
            ("\\set\n", "write it like `\\set id random(1, 1000)`"),
            ("\\set 1a 2\n", "`1a` is not a name"),
            ("\\set a debug(1)\n", "`debug(1)` there is no function `debug`"),
            ("SELECT :x;", "`:x` is set nowhere before"),
            ("SELECT 'a", "a `'` has no end"),
            ("SELECT 1;\n/* a", "line 2: a comment has no end"),
            ("\\sleep 1 h\nSELECT 1", "`h` is not a unit"),
            ("-- nothing\n;;\n", "has no SQL statement"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        let script = parse("\\set n 0 - 1\n\\sleep :n us\nSELECT 1").unwrap();
        let mut random = stream(1, Purpose::Requests, 0);
        let error = script.draw(&mut vec![], &mut random, &mut vec![]).unwrap_err();
        assert!(error.to_string().contains("not negative"), "{error}");
    }
}
