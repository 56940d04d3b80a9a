//! Transactions as the user writes them: SQL with `:name` for parameters, and what pgbench's scripts
//! have of `\set`, `\sleep`, `\if` and `\gset`.

use kendall_units::printable;

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
    pub(super) variables: Vec<String>,
    /// Variables that only a column of a `\gset` can be, and where they are used first.
    pub(super) awaited: Vec<(usize, usize)>,
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
    /// Goes on at a later step where the expression does not hold, or in any case.
    Skip(Option<Expression>, usize),
}

/// SQL with `$1`, `$2`, …, and the variables that stand for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) parameters: Vec<usize>,
    pub(super) number: usize,
    /// Of `\gset`: its one row is stored in variables that are called like the columns, behind this.
    pub(super) stores: Option<String>,
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
    pub fn parse(
        (name, weight): (&str, f64),
        text: &str,
        given: &[String],
    ) -> Result<Self, ScriptError> {
        let (variables, awaited) = (given.to_vec(), Vec::new());
        let script = Self { name: name.to_owned(), weight, steps: Vec::new(), variables, awaited };
        let mut reader = Reader { script, line: 1, open: Vec::new() };
        let refuse = |line, what| ScriptError { script: name.to_owned(), line, what };
        for piece in pieces(text).map_err(|(line, what)| refuse(line, what))? {
            reader.line = piece.line;
            let read = if piece.is_command {
                reader.command(piece.text)
            } else {
                reader.statement(piece.text)
            };
            read.map_err(|what| refuse(piece.line, what))?;
        }
        if let Some(branch) = reader.open.last() {
            return Err(refuse(branch.line, "`\\if` has no `\\endif`".to_owned()));
        }
        if reader.script.statements().next().is_none() {
            return Err(refuse(1, "has no SQL statement".to_owned()));
        }
        Ok(reader.script)
    }

    /// Its statements, each with its line.
    pub(super) fn statements(&self) -> impl Iterator<Item = (usize, &Statement)> {
        self.steps.iter().filter_map(|step| match &step.does {
            Does::Statement(statement) => Some((step.line, statement)),
            _ => None,
        })
    }

    /// Draws what one request does from a step on, to the end or to a statement whose results decide what follows: where
    /// it goes on then. At first, `variables` are the values of the given ones.
    ///
    /// # Errors
    /// [`ScriptError`] for an expression that has no value, such as a division by zero.
    pub(super) fn draw(
        &self,
        mut at: usize,
        variables: &mut Vec<Value>,
        random: &mut crate::random::Random,
        actions: &mut Vec<Action>,
    ) -> Result<usize, ScriptError> {
        variables.resize(self.variables.len(), Value::Unset);
        actions.clear();
        while let Some(step) = self.steps.get(at) {
            let refuse = |what| ScriptError { script: self.name.clone(), line: step.line, what };
            at += 1;
            match &step.does {
                Does::Set(number, expression) => {
                    variables[*number] = expression.value(variables, random).map_err(refuse)?;
                }
                Does::Sleep(expression, unit) => {
                    let time = expression.value(variables, random).map_err(refuse)?;
                    actions.push(Action::Sleep(nanoseconds(&time, *unit).map_err(refuse)?));
                }
                Does::Skip(test, to) => {
                    let test = test.as_ref().map(|test| test.holds(variables, random));
                    if !test.transpose().map_err(refuse)?.unwrap_or(false) {
                        at = *to;
                    }
                }
                Does::Statement(statement) => {
                    let of = |number: &usize| match &variables[*number] {
                        Value::Unset => {
                            Err(format!("`:{}` is not set there", self.variables[*number]))
                        }
                        value => Ok(value.to_string()),
                    };
                    let parameters: Result<_, _> = statement.parameters.iter().map(of).collect();
                    actions.push(Action::Execute(statement.number, parameters.map_err(refuse)?));
                    if statement.stores.is_some() {
                        break;
                    }
                }
            }
        }
        Ok(at)
    }

    /// Whether nothing is left to do from a step on.
    pub(super) fn is_over(&self, at: usize) -> bool {
        at >= self.steps.len()
    }
}

fn nanoseconds(time: &Value, unit: i64) -> Result<u64, String> {
    let time = if let Value::Whole(time) = time { time.checked_mul(unit) } else { None };
    time.and_then(|time| u64::try_from(time).ok())
        .ok_or_else(|| "`\\sleep` needs a whole number that is not negative".to_owned())
}

/// An `\if` that is open.
struct Branch {
    line: usize,
    /// The step that skips the branch that is being read; none behind `\else`.
    test: Option<usize>,
    /// The steps at the ends of the branches before, which go on behind `\endif`.
    ends: Vec<usize>,
}

struct Reader {
    script: Script,
    line: usize,
    open: Vec<Branch>,
}

impl Reader {
    /// Adds a step: its number.
    fn push(&mut self, does: Does) -> usize {
        self.script.steps.push(Step { line: self.line, does });
        self.script.steps.len() - 1
    }

    /// A variable that was set before, or may be of a `\gset` before.
    fn variable(&mut self, name: &str) -> Option<usize> {
        let script = &mut self.script;
        let number = script.variables.iter().position(|known| known == name);
        number.or_else(|| {
            let of_column = |(_, statement): (usize, &Statement)| {
                statement.stores.as_ref().is_some_and(|prefix| name.starts_with(prefix))
            };
            let may_be = script.statements().any(of_column);
            may_be.then(|| {
                script.variables.push(name.to_owned());
                script.awaited.push((script.variables.len() - 1, self.line));
                script.variables.len() - 1
            })
        })
    }

    fn expression(&mut self, text: &str) -> Result<Expression, String> {
        expression::parse(text, &mut |name| self.variable(name))
    }

    fn command(&mut self, text: &str) -> Result<(), String> {
        // A backslash at the end of a line continues it.
        let text = &text.replace("\\\n", " ");
        let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let does = match command {
            "\\set" => self.set(rest)?,
            "\\sleep" => self.sleep(rest)?,
            "\\if" | "\\elif" | "\\else" | "\\endif" => return self.branch(command, rest),
            "\\gset" => return self.store(rest.trim()),
            other => {
                return Err(format!(
                    "`{}` is not supported here; `\\set`, `\\sleep`, `\\gset`, `\\if`, `\\elif`, `\\else` and \
                     `\\endif` are. What needs more is a program of your own (docs/load.md)",
                    printable(other, 20)
                ));
            }
        };
        self.push(does);
        Ok(())
    }

    fn set(&mut self, rest: &str) -> Result<Does, String> {
        let form = || "write it like `\\set id random(1, 1000)`".to_owned();
        let (name, expression) =
            rest.trim_start().split_once(char::is_whitespace).ok_or_else(form)?;
        if !name.starts_with(is_first) || !name.chars().all(is_more) {
            return Err(format!("`{}` is not a name: {}", printable(name, 20), form()));
        }
        let expression = self.expression(expression)?;
        let variables = &mut self.script.variables;
        let number = variables.iter().position(|known| known == name).unwrap_or_else(|| {
            variables.push(name.to_owned());
            variables.len() - 1
        });
        Ok(Does::Set(number, expression))
    }

    fn sleep(&mut self, rest: &str) -> Result<Does, String> {
        let (time, unit) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest, "s"));
        let unit = match unit.trim() {
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            unit => {
                let unit = printable(unit, 20);
                return Err(format!("`{unit}` is not a unit; write us, ms or s"));
            }
        };
        Ok(Does::Sleep(self.expression(time)?, unit))
    }

    fn branch(&mut self, command: &str, rest: &str) -> Result<(), String> {
        let mut branch = if command == "\\if" {
            Branch { line: self.line, test: None, ends: Vec::new() }
        } else {
            let branch = self.open.pop();
            let mut branch =
                branch.ok_or_else(|| format!("`{command}` has no `\\if` before it"))?;
            if command != "\\endif" {
                branch.ends.push(self.push(Does::Skip(None, 0)));
            }
            match branch.test.take() {
                Some(test) => self.lead_here(test),
                None if command == "\\endif" => {}
                None => return Err(format!("`{command}` comes after `\\else`")),
            }
            branch
        };
        match command {
            "\\endif" => {
                branch.ends.into_iter().for_each(|end| self.lead_here(end));
                return Ok(());
            }
            "\\else" => {}
            _ => {
                let test = self.expression(rest)?;
                branch.test = Some(self.push(Does::Skip(Some(test), 0)));
            }
        }
        self.open.push(branch);
        Ok(())
    }

    /// Lets a step that skips others go on behind those that were read until now.
    fn lead_here(&mut self, step: usize) {
        let here = self.script.steps.len();
        if let Does::Skip(_, to) = &mut self.script.steps[step].does {
            *to = here;
        }
    }

    fn store(&mut self, prefix: &str) -> Result<(), String> {
        match self.script.steps.last_mut().map(|step| &mut step.does) {
            Some(Does::Statement(statement)) if statement.stores.is_none() => {
                statement.stores = Some(prefix.to_owned());
                Ok(())
            }
            _ => Err("`\\gset` has no statement before it".to_owned()),
        }
    }

    /// `:name` outside of quotations becomes a parameter.
    fn statement(&mut self, text: &str) -> Result<(), String> {
        let number = self.script.statements().count();
        let (sql, parameters) = (String::new(), Vec::new());
        let mut statement = Statement { sql, parameters, number, stores: None };
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
        self.push(Does::Statement(statement));
        Ok(())
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
            if has_begun && command.starts_with("\\gset") {
                pieces.push(statement_at(text, begin, at, line_of));
            } else if has_begun {
                let command = printable(command, 20);
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
        let at = script.draw(0, &mut values, &mut random, &mut actions).unwrap();
        assert!(script.is_over(at));
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
            ("SELECT 1;\n\\if 1\n", "a.sql, line 2: `\\if` has no `\\endif`"),
            ("SELECT 1;\n\\endif\n", "a.sql, line 2: `\\endif` has no `\\if` before it"),
            ("\\if 1\n\\else\n\\elif 1\n", "line 3: `\\elif` comes after `\\else`"),
            ("SELECT 1 AS x \\aset\n", "line 1: `\\aset` is not supported inside a statement"),
            ("\\gset\n", "`\\gset` has no statement before it"),
            ("SELECT 1 AS x \\gset a_\nSELECT :x;", "line 2: `:x` is set nowhere before"),
            ("\\shell ls\n", "`\\shell` is not supported here"),
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
        let error = script.draw(0, &mut vec![], &mut random, &mut vec![]).unwrap_err();
        assert!(error.to_string().contains("not negative"), "{error}");
    }

    #[test]
    fn branches_and_results_decide_what_is_executed() {
        let script = parse(
            "SELECT 7 AS n, 'x' AS m \\gset got_\n\\if :got_n > 10\nSELECT 1;\n\\elif :got_n = 7\n\\set k :got_n * 2\n\
             SELECT :k, :got_m;\n\\if 0\nSELECT 2;\n\\endif\n\\else\nSELECT 3;\n\\endif\nSELECT :got_n;\n",
        )
        .unwrap();
        let mut random = stream(1, Purpose::Requests, 0);
        let (mut values, mut actions) = (vec![], vec![]);
        let at = script.draw(0, &mut values, &mut random, &mut actions).unwrap();
        assert_eq!(actions, [Action::Execute(0, vec![])]);
        assert!(!script.is_over(at));
        let number = |name: &str| script.variables.iter().position(|known| known == name).unwrap();
        for (n, executed) in [
            (11, vec![Action::Execute(1, vec![]), Action::Execute(5, vec!["11".to_owned()])]),
            (
                7,
                vec![
                    Action::Execute(2, vec!["14".to_owned(), "x".to_owned()]),
                    Action::Execute(5, vec!["7".to_owned()]),
                ],
            ),
            (0, vec![Action::Execute(4, vec![]), Action::Execute(5, vec!["0".to_owned()])]),
        ] {
            let mut values = values.clone();
            values[number("got_n")] = Value::Whole(n);
            values[number("got_m")] = Value::Text("x".to_owned());
            let at = script.draw(at, &mut values, &mut random, &mut actions).unwrap();
            assert_eq!((actions.as_slice(), script.is_over(at)), (&executed[..], true));
        }
        let awaited: Vec<(usize, usize)> = script.awaited.clone();
        assert_eq!(awaited, [(number("got_n"), 2), (number("got_m"), 6)]);
        let unset = parse("\\if 0\n\\set a 1\n\\endif\nSELECT :a;").unwrap();
        let error = unset.draw(0, &mut vec![], &mut random, &mut vec![]).unwrap_err();
        assert_eq!(error.to_string(), "a.sql, line 4: `:a` is not set there");
    }
}
