//! Kendall's notation as people write it: `M/M/5`, `m/m/c/K`, `M/E2/1`, `M/M/2//10`, `GI/G/1-PS`.

use super::CaseError;
use super::read::{Fields, absent};
use crate::model::refused;

/// What stands for a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Letter {
    /// M.
    Markov,
    /// D.
    Deterministic,
    /// `E_k`: with its number of stages where it is written.
    Erlang(Option<u32>),
    /// `H_k`.
    Hyperexponential,
    /// G, GI, and others that say no more than that fields describe it.
    General,
}

/// A place of the notation that holds a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    /// Nothing is written.
    Absent,
    /// Without limit.
    Infinite,
    /// Written.
    Number(u64),
    /// A letter: a field gives the number.
    Given(char),
}

/// A kind in Kendall's notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notation {
    pub(super) arrivals: Letter,
    pub(super) service: Letter,
    /// Whether customers come in batches.
    pub(super) batches: bool,
    servers: Count,
    capacity: Count,
    population: Count,
    /// What is left: a discipline, `+m`.
    pub(super) rest: String,
}

/// The numbers of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    /// `None`: infinitely many.
    pub(super) servers: Option<u64>,
    pub(super) capacity: Option<u64>,
    pub(super) population: Option<u64>,
}

/// Other names of kinds.
const NAMES: [(&str, &str); 34] = [
    ("mm1", "m/m/1"),
    ("mmm", "m/m/m"),
    ("mmc", "m/m/m"),
    ("mms", "m/m/m"),
    ("mm1k", "m/m/1/k"),
    ("mmmk", "m/m/m/k"),
    ("mmck", "m/m/m/k"),
    ("mmmm", "m/m/m/m"),
    ("mmcc", "m/m/m/m"),
    ("mm1n", "m/m/1//n"),
    ("mmmn", "m/m/m//n"),
    ("mminf", "m/m/inf"),
    ("infinite-server", "m/m/inf"),
    ("md1", "m/d/1"),
    ("mdm", "m/d/m"),
    ("mg1", "m/g/1"),
    ("mg1ps", "m/g/1-ps"),
    ("gm1", "g/m/1"),
    ("gg1", "g/g/1"),
    ("gig1", "g/g/1"),
    ("ggm", "g/g/m"),
    ("gigm", "g/g/m"),
    ("mgm", "m/g/m"),
    ("mxm1", "mx/m/1"),
    ("batch-arrivals", "mx/m/1"),
    ("finite-population", "m/m/m//n"),
    ("finite-source", "m/m/m//n"),
    ("machine-repairman", "m/m/m//n"),
    ("machine-repair", "m/m/m//n"),
    ("engset", "m/m/m/m/n"),
    ("erlang-loss", "m/m/m/m"),
    ("erlang-a", "m/m/m+m"),
    ("processor-sharing", "m/g/1-ps"),
    ("mmm+m", "m/m/m+m"),
];

impl Notation {
    /// `None` when it is no notation.
    pub(super) fn parse(kind: &str) -> Option<Self> {
        let known = NAMES.iter().find(|(name, _)| *name == kind).map(|(_, notation)| *notation);
        let text = known.unwrap_or(kind);
        let mut places = text.split('/');
        let (arrivals, batches) = arrivals(places.next()?)?;
        let service = letter(places.next()?)?;
        let mut found = Self {
            arrivals,
            service,
            batches,
            servers: Count::Absent,
            capacity: Count::Absent,
            population: Count::Absent,
            rest: String::new(),
        };
        for (index, place) in places.enumerate() {
            let end = place.find(['-', '+', '(', ' ']).unwrap_or(place.len());
            let (written, rest) = place.split_at(end);
            let Some(count) = count(written) else {
                found.rest.push('-');
                found.rest.push_str(place);
                continue;
            };
            found.rest.push_str(rest);
            match index {
                0 => found.servers = count,
                1 => found.capacity = count,
                2 => found.population = count,
                _ => found.rest.push_str(place),
            }
        }
        (found.servers != Count::Absent).then_some(found)
    }

    /// Whether a discipline or another word stands behind the notation.
    pub(super) fn says(&self, word: &str) -> bool {
        self.rest.contains(word)
    }

    /// The numbers, from the notation and from fields.
    pub(super) fn numbers(&self, fields: &Fields<'_>) -> Result<Numbers, CaseError> {
        let servers = fields.given_servers()?;
        let mut capacity = fields.count(&[
            "capacity",
            "K",
            "k",
            "buffers",
            "B",
            "system_capacity",
            "max_jobs",
            "limit",
        ])?;
        let population =
            fields.count(&["population", "N", "customers", "sources", "machines", "n", "users"])?;
        let servers = match (self.servers, servers) {
            (Count::Infinite, _) => None,
            (place, given) => Some(agreed("servers", place, given)?.unwrap_or(1)),
        };
        let room = ["waiting_room", "queue_capacity", "buffer_size", "waiting_positions"];
        if let (None, Some(room), Some(m)) = (capacity, fields.count(&room)?, servers) {
            capacity = Some(room.saturating_add(m));
        }
        // M/M/m/m, M/M/c/c: as much room as servers. A letter N is a population.
        let capacity = match (self.capacity, self.servers) {
            (Count::Given(a), Count::Given(b)) if a == b => servers.map(|m| capacity.unwrap_or(m)),
            (Count::Given('n'), _) if capacity.is_none() && population.is_some() => None,
            (place, _) => agreed("capacity", place, capacity)?,
        };
        Ok(Numbers {
            servers,
            capacity,
            population: agreed("population", self.population, population)?,
        })
    }
}

/// What the notation and a field say together.
fn agreed(name: &str, place: Count, given: Option<u64>) -> Result<Option<u64>, CaseError> {
    match (place, given) {
        (Count::Number(a), Some(b)) if a != b => {
            Err(refused(name, b, format!("{a}, as the kind says, or another kind")).into())
        }
        (Count::Number(a), _) => Ok(Some(a)),
        (Count::Given(_), None) => Err(absent(name).into()),
        (_, given) => Ok(given),
    }
}

fn arrivals(text: &str) -> Option<(Letter, bool)> {
    match text {
        "m^[x]" | "m[x]" | "m^x" | "mx" | "m^(x)" | "m^[b]" | "m^b" | "m^[k]" => {
            Some((Letter::Markov, true))
        }
        other => letter(other).map(|letter| (letter, false)),
    }
}

fn letter(text: &str) -> Option<Letter> {
    let text = text.replace(['_', '{', '}'], "");
    Some(match text.as_str() {
        "m" | "exp" => Letter::Markov,
        "d" | "det" => Letter::Deterministic,
        "ek" | "e" | "er" | "erlang" => Letter::Erlang(None),
        "g" | "gi" | "u" | "ln" | "ph" | "gamma" | "w" | "c2" => Letter::General,
        other => {
            if let Some(stages) = other.strip_prefix('e') {
                Letter::Erlang(Some(stages.parse().ok()?))
            } else if other.starts_with('h') && other.len() <= 2 {
                Letter::Hyperexponential
            } else {
                return None;
            }
        }
    })
}

fn count(text: &str) -> Option<Count> {
    match text {
        "" => Some(Count::Absent),
        "inf" | "infinity" | "∞" | "oo" => Some(Count::Infinite),
        _ => {
            let mut letters = text.chars();
            match (letters.next(), letters.next()) {
                (Some(letter), None) if letter.is_alphabetic() => Some(Count::Given(letter)),
                _ => text.parse().ok().map(Count::Number),
            }
        }
    }
}
