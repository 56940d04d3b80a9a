//! What a command says of itself: where it listens, how many workers it has, what it is called.

use kendall_protocols::topology::TierId;

use crate::exit::{Exit, exit_with};

/// A command whose address, and workers where it states them, are placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Looked {
    pub(super) name: String,
    pub(super) words: Vec<String>,
    /// What the command said.
    pub(super) workers: Option<u32>,
    /// Tiers that its command names, and those that no command names, which it may call too.
    pub(super) backends: Vec<String>,
    pub(super) unnamed: Vec<String>,
    /// What was replaced, for people.
    pub(super) notes: Vec<String>,
}

/// Placeholders that a user may write.
const KNOWN: [&str; 6] = ["address", "port", "host", "folder", "workers", "instance"];

const ADDRESS_FLAGS: [&str; 10] = [
    "-b",
    "--bind",
    "--listen",
    "-l",
    "--addr",
    "--address",
    "--http",
    "--http-address",
    "--listen-address",
    "-addr",
];

const PORT_FLAGS: [&str; 6] = ["-p", "--port", "--http-port", "--listen-port", "-port", "-P"];

/// Flags whose value is a number of workers.
const WORKER_FLAGS: [&str; 5] =
    ["-w", "--workers", "--processes", "--threads", "--worker-processes"];

/// Programs that run others.
const RUNNERS: [&str; 12] =
    ["python", "python3", "node", "java", "ruby", "php", "perl", "deno", "bun", "uv", "env", "sh"];

impl Looked {
    /// One command, which is the whole service.
    pub(super) fn at(command: &[String]) -> Result<Self, String> {
        let mut looked = Self::new(name(command), command, &[]);
        looked.find_workers();
        looked.find_address_unless_stated()?;
        Ok(looked)
    }

    /// Tiers such as `web=gunicorn -b {address} app:app`, in the order of starting: a command names those before it
    /// as `{db}`, and calls them. Clients talk to the last, which may also call those that no other names.
    pub(super) fn tiers(written: &[String]) -> Result<Vec<Self>, String> {
        let mut all: Vec<Self> = Vec::new();
        for text in written {
            let form = "write it like --tier 'db=redis-server --port {port}'";
            let (name, command) =
                text.split_once('=').ok_or_else(|| format!("`{text}` is not a tier; {form}"))?;
            let before: Vec<String> = all.iter().map(|tier| tier.name.clone()).collect();
            let name = TierId::new(name).map_err(|error| format!("--tier {name}: {error}"))?;
            if before.iter().any(|other| name == *other.as_str()) {
                return Err(format!("two tiers are called `{name}`; give each a name of its own"));
            }
            let command = words_of(command);
            if command.is_empty() {
                return Err(format!("tier `{name}` has no command; {form}"));
            }
            let mut looked = Self::new(name.to_string(), &command, &before);
            let what = |what: String| format!("tier `{name}`: {what}");
            looked.find_address_unless_stated().map_err(what)?;
            all.push(looked);
        }
        for (place, (tier, text)) in all.iter().zip(written).enumerate() {
            let named = |later: &&Self| text.contains(&format!("{{{}}}", later.name));
            if let Some(later) = all.iter().skip(place + 1).find(named) {
                return Err(format!(
                    "tier `{}` names `{{{}}}`, which is started after it; give that --tier first",
                    tier.name, later.name
                ));
            }
        }
        let called: Vec<String> = all.iter().flat_map(|tier| tier.backends.clone()).collect();
        if let Some((last, others)) = all.split_last_mut() {
            last.find_workers();
            let uncalled = others.iter().map(|tier| tier.name.clone());
            last.unnamed = uncalled.filter(|name| !called.contains(name)).collect();
        }
        Ok(all)
    }

    fn new(name: String, command: &[String], others: &[String]) -> Self {
        let words: Vec<String> = command.iter().map(|word| escaped(word, others)).collect();
        let names = |other: &&String| {
            words.iter().any(|word| {
                word.contains(&format!("{{{other}}}"))
                    || word.contains(&format!("{{each:{other}}}"))
            })
        };
        let backends = others.iter().filter(names).cloned().collect();
        Self { name, words, workers: None, backends, unnamed: Vec::new(), notes: Vec::new() }
    }

    fn find_address_unless_stated(&mut self) -> Result<(), String> {
        let looked = self;
        let stated = |word: &String| word.contains("{address}") || word.contains("{port}");
        if looked.words.iter().any(stated) { Ok(()) } else { looked.find_address() }
    }

    /// The value of the first of these flags that `accepts` it: its word, and where it begins there.
    fn value(&self, flags: &[&str], accepts: impl Fn(&str) -> bool) -> Option<(usize, usize)> {
        self.words.iter().enumerate().skip(1).find_map(|(index, word)| {
            if let Some((flag, value)) = word.split_once('=') {
                return (flags.contains(&flag) && accepts(value))
                    .then_some((index, flag.len() + 1));
            }
            let next = self.words.get(index + 1)?;
            (flags.contains(&word.as_str()) && accepts(next)).then_some((index + 1, 0))
        })
    }

    fn replace(&mut self, (index, from): (usize, usize), placeholder: &str, what: &str) {
        let old = self.words[index].split_off(from);
        self.words[index].push_str(placeholder);
        self.notes.push(format!("{what} `{old}` became {placeholder}"));
    }

    fn find_workers(&mut self) {
        let is_number = |text: &str| text.parse::<u32>().is_ok_and(|n| (1..=256).contains(&n));
        if let Some((index, from)) = self.value(&WORKER_FLAGS, is_number) {
            self.workers = self.words[index][from..].parse().ok();
            self.replace((index, from), "{workers}", "the number of workers");
        }
    }

    fn find_address(&mut self) -> Result<(), String> {
        let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
        if let Some(at) = self.value(&ADDRESS_FLAGS, is_address) {
            self.replace(at, "{address}", "the address");
        } else if let Some(at) = self.value(&PORT_FLAGS, is_port) {
            self.replace(at, "{port}", "the port");
        } else if let Some(index) = (1..self.words.len()).find(|i| is_address(&self.words[*i])) {
            self.replace((index, 0), "{address}", "the address");
        } else if let Some(index) = (1..self.words.len())
            .rfind(|i| self.words[*i].parse::<u16>().is_ok_and(|port| port >= 1_024))
        {
            self.replace((index, 0), "{port}", "the port");
        } else {
            return Err("nothing in the command says where it listens; write {address} (HOST:PORT) or \
                        {port} where it does, such as `kendall init -- gunicorn -b {address} app:app`"
                .to_owned());
        }
        Ok(())
    }

    /// The command for a try, with the addresses of tiers that run: placeholders filled, braces as they were.
    pub(super) fn filled(
        &self,
        (host, port): (&str, u16),
        folder: &str,
        others: &[(String, String)],
    ) -> anyhow::Result<Vec<String>> {
        let mut values = vec![
            ("address", format!("{host}:{port}")),
            ("port", port.to_string()),
            ("host", host.to_owned()),
            ("folder", folder.to_owned()),
            ("workers", self.workers.unwrap_or(1).to_string()),
            ("instance", "0".to_owned()),
        ];
        values.extend(others.iter().map(|(name, address)| (name.as_str(), address.clone())));
        // There is one of each here.
        let words: Vec<String> =
            self.words.iter().map(|word| word.replace("{each:", "{")).collect();
        kendall_study::fill(&words, &values)
            .map_err(|name| exit_with(Exit::Refused, format!("`{{{name}}}` is no placeholder")))
    }
}

/// `127.0.0.1:8000`, `:8000`, `localhost:8000`, `[::]:8000`.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = host.is_empty()
        || host == "localhost"
        || host == "*"
        || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Braces doubled, as study files write them, but for placeholders.
fn escaped(word: &str, others: &[String]) -> String {
    let doubled = word.replace('{', "{{").replace('}', "}}");
    let each = others.iter().map(|name| format!("each:{name}"));
    let known =
        KNOWN.iter().map(|name| (*name).to_owned()).chain(others.iter().cloned()).chain(each);
    known.fold(doubled, |text, name| {
        text.replace(&format!("{{{{{name}}}}}"), &format!("{{{name}}}"))
    })
}

/// The words of a command as a shell takes them: split at spaces, but for what is in quotes.
fn words_of(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What the service is called: by its program, or by what a runner is to run.
fn name(command: &[String]) -> String {
    let stem = |word: &str| {
        let file = word.rsplit('/').next().unwrap_or(word);
        let stem = file.split_once('.').map_or(file, |(stem, _)| stem);
        stem.chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' })
            .collect::<String>()
    };
    let mut names = command.iter().enumerate().filter_map(|(index, word)| {
        let after_module = index > 0 && command[index - 1] == "-m";
        if after_module {
            return Some(word.replace('.', "-"));
        }
        let runner = RUNNERS.contains(&stem(word).as_str());
        (!word.starts_with('-') && !word.contains('=') && !runner).then(|| stem(word))
    });
    let name = names.next().unwrap_or_default();
    let name = name.trim_matches('-');
    // Some names are taken.
    if TierId::new(name).is_ok() { name.to_owned() } else { "service".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> Looked {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        Looked::at(&words).unwrap()
    }

    #[test]
    fn address_and_workers_are_found_where_commands_usually_have_them() {
        for (command, expected, name, workers) in [
            (
                "gunicorn -w 2 -b 127.0.0.1:8000 app:app",
                "gunicorn -w {workers} -b {address} app:app",
                "gunicorn",
                Some(2),
            ),
            ("gunicorn -b {address} app:app", "gunicorn -b {address} app:app", "gunicorn", None),
            (
                "uvicorn app:app --port=8000 --workers=4",
                "uvicorn app:app --port={port} --workers={workers}",
                "uvicorn",
                Some(4),
            ),
            ("python3 -m http.server 8000", "python3 -m http.server {port}", "http-server", None),
            ("./bin/shop -addr :8080", "./bin/shop -addr {address}", "shop", None),
            ("node server.js 0.0.0.0:3000", "node server.js {address}", "server", None),
            ("memcached -p 11211 -t 1", "memcached -p {port} -t 1", "memcached", None),
        ] {
            let looked = look(command);
            assert_eq!(looked.words.join(" "), expected);
            assert_eq!((looked.name.as_str(), looked.workers), (name, workers), "{command}");
        }
    }

    #[test]
    fn tiers_call_those_that_they_name_and_the_last_may_call_the_rest() {
        let tiers = |written: &[&str]| {
            let written: Vec<String> = written.iter().map(|text| (*text).to_owned()).collect();
            Looked::tiers(&written)
        };
        let all = tiers(&[
            "db=redis-server --port {port}",
            "app=./app '--db={db}' -b {address}",
            "cache=memcached -p 11211",
            "web=sh -c 'exec gunicorn \"$@\"' sh -w 2 -b :8000 --env APP={app}",
        ])
        .unwrap();
        let backends: Vec<String> = all.iter().map(|tier| tier.backends.join(" ")).collect();
        assert_eq!(backends, ["", "db", "", "app"]);
        assert_eq!(all[3].unnamed, ["cache"]);
        assert_eq!(all[1].words, ["./app", "--db={db}", "-b", "{address}"].map(str::to_owned));
        assert_eq!(all[2].words[2], "{port}");
        assert_eq!((all[3].words[2].as_str(), all[3].workers), ("exec gunicorn \"$@\"", Some(2)));
        let filled = all[1].filled(
            ("127.0.0.1", 81),
            "/tmp",
            &[("db".to_owned(), "127.0.0.1:82".to_owned())],
        );
        assert_eq!(filled.unwrap()[1], "--db=127.0.0.1:82");
        for (written, says) in [
            (&["./web"][..], "is not a tier"),
            (&["web="], "has no command"),
            (&["web=./web {port}", "web=./web {port}"], "two tiers are called"),
            (&["clients=./web {port}"], "clients"),
            (&["web=./web"], "tier `web`: nothing in the command"),
            (&["web=./web {port} {db}", "db=./db {port}"], "`{db}`, which is started after"),
        ] {
            let error = tiers(written).unwrap_err();
            assert!(error.contains(says), "{written:?}: {error}");
        }
    }

    #[test]
    fn a_command_that_says_no_address_is_refused_with_what_to_write() {
        let error = Looked::at(&["./shop".to_owned(), "--verbose".to_owned()]).unwrap_err();
        assert!(error.contains("{address}") && error.contains("{port}"), "{error}");
    }

    #[test]
    fn braces_of_the_command_stay_braces() {
        let looked = look("./shop --json {\"a\":1} -b {address}");
        assert_eq!(looked.words[2], "{{\"a\":1}}");
        let filled = looked.filled(("127.0.0.1", 81), "/tmp", &[]).unwrap();
        assert_eq!(filled[2..], ["{\"a\":1}", "-b", "127.0.0.1:81"].map(str::to_owned));
    }
}
