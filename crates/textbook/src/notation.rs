//! Kendall's notation as people write it: `M/M/5`, `m/m/c/K`, `M/E2/1`, `M/M/2//10`, `GI/G/1-PS`.

use kendall_keys::Section;

use crate::TextbookError;

/// What notation looks like, for messages.
pub(crate) const FORM: &str = "Kendall's notation (M/M/1, M/M/m, M/M/5/20, M/M/m//N, M/M/inf, \
                               M/M/m+M, M/M/m+G, M/D/1, M/E2/1, M/H2/1, M/G/1, M/G/1-PS, \
                               M/G/1-LCFS-PR, M/G/1-SJF, M/G/1-SRPT, M/M/1-LCFS, M/M/1-SIRO, M/G/1-priority, D/M/1, GI/G/m, M^[x]/M/1)";

/// What stands for a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Letter {
    /// M.
    Markov,
    /// D.
    Deterministic,
    /// `E_k`: with its number of stages where it is written.
    Erlang(Option<u32>),
    /// `H_k`.
    Hyperexponential,
    /// G, GI: keys describe it.
    General,
}

/// A place of the notation that holds a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// Nothing is written.
    Absent,
    Infinite,
    Number(u64),
    /// A letter: a key gives the number.
    Given(char),
}

/// What stands behind the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suffix {
    /// Nothing: first come, first served.
    None,
    /// `-PS`.
    Ps,
    /// `-LCFS`.
    Lcfs,
    /// `-LCFS-PR`.
    LcfsPr,
    /// `-SIRO`.
    Siro,
    /// `-priority`.
    Priority,
    /// `-SJF`.
    Sjf,
    /// `-SRPT`.
    Srpt,
    /// `+M`.
    Impatient,
    /// `+G`.
    ImpatientGeneral,
}

const SUFFIXES: [(&str, Suffix); 10] = [
    ("-lcfs-pr", Suffix::LcfsPr),
    ("-lcfs", Suffix::Lcfs),
    ("-ps", Suffix::Ps),
    ("-siro", Suffix::Siro),
    ("-fcfs", Suffix::None),
    ("-sjf", Suffix::Sjf),
    ("-srpt", Suffix::Srpt),
    ("-priority", Suffix::Priority),
    ("+m", Suffix::Impatient),
    ("+g", Suffix::ImpatientGeneral),
];

/// A kind in Kendall's notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notation {
    pub(crate) arrivals: Letter,
    pub(crate) service: Letter,
    /// Whether customers come in batches.
    pub(crate) batches: bool,
    pub(crate) suffix: Suffix,
    servers: Count,
    capacity: Count,
    population: Count,
}

/// The numbers of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// `None`: infinitely many.
    pub(crate) servers: Option<u64>,
    pub(crate) capacity: Option<u64>,
    pub(crate) population: Option<u64>,
}

impl Notation {
    /// `None` when it is not a notation; `kind` is in lower case.
    pub(crate) fn parse(kind: &str) -> Option<Self> {
        let ending = SUFFIXES.iter().find(|(ending, _)| kind.ends_with(ending));
        let (text, suffix) = match ending {
            Some((ending, suffix)) => (kind.strip_suffix(ending)?, *suffix),
            None => (kind, Suffix::None),
        };
        let mut places = text.split('/');
        let (arrivals, batches) = arrivals(places.next()?)?;
        let service = letter(places.next()?)?;
        let mut counts = [Count::Absent; 3];
        let mut places = places.peekable();
        places.peek()?;
        for (index, place) in places.enumerate() {
            *counts.get_mut(index)? = count(place)?;
        }
        let [servers, capacity, population] = counts;
        (servers != Count::Absent).then_some(Self {
            arrivals,
            service,
            batches,
            suffix,
            servers,
            capacity,
            population,
        })
    }

    /// Whether there is a place for a number of servers that a key gives.
    pub(crate) fn servers_given(&self) -> bool {
        matches!(self.servers, Count::Given(_))
    }

    /// Whether a key gives the capacity: `M/M/m/m` has as much room as servers.
    pub(crate) fn capacity_given(&self) -> bool {
        matches!(self.capacity, Count::Given(_)) && self.capacity != self.servers
    }

    /// Whether the population is finite.
    pub(crate) fn is_closed(&self) -> bool {
        !matches!(self.population, Count::Absent | Count::Infinite)
    }

    /// Whether a key gives the population.
    pub(crate) fn population_given(&self) -> bool {
        matches!(self.population, Count::Given(_))
    }

    /// The numbers, from the notation and from keys.
    pub(crate) fn numbers(&self, section: &mut Section<'_>) -> Result<Numbers, TextbookError> {
        let mut given = |key: &str, place: Count| -> Result<Option<u64>, TextbookError> {
            match place {
                Count::Number(number) => Ok(Some(number)),
                Count::Absent | Count::Infinite => Ok(None),
                Count::Given(_) => match section.opt_count(key)? {
                    None => Err(TextbookError::missing(key, "a whole number")),
                    given => Ok(given),
                },
            }
        };
        let servers = given("servers", self.servers)?;
        let capacity = if self.capacity_given() || self.capacity != self.servers {
            given("capacity", self.capacity)?
        } else {
            match self.capacity {
                Count::Given(_) => servers,
                _ => given("capacity", self.capacity)?,
            }
        };
        let population = given("population", self.population)?;
        Ok(Numbers { servers, capacity, population })
    }
}

fn arrivals(text: &str) -> Option<(Letter, bool)> {
    if text == "m^[x]" {
        return Some((Letter::Markov, true));
    }
    let letter = if matches!(text, "map" | "mmpp") { Some(Letter::General) } else { letter(text) };
    letter.map(|letter| (letter, false))
}

fn letter(text: &str) -> Option<Letter> {
    Some(match text {
        "m" => Letter::Markov,
        "d" => Letter::Deterministic,
        "ek" | "e_k" => Letter::Erlang(None),
        "g" | "gi" | "ph" | "cox" => Letter::General,
        "h2" | "hk" | "h_k" => Letter::Hyperexponential,
        other => Letter::Erlang(Some(other.strip_prefix('e')?.parse().ok()?)),
    })
}

fn count(text: &str) -> Option<Count> {
    match text {
        "" => Some(Count::Absent),
        "inf" | "∞" => Some(Count::Infinite),
        _ => {
            let mut letters = text.chars();
            match (letters.next(), letters.next()) {
                (Some(letter), None) if letter.is_alphabetic() => Some(Count::Given(letter)),
                _ => text.parse().ok().map(Count::Number),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notation_is_read_as_it_is_written() {
        let parse = |text: &str| Notation::parse(&text.to_lowercase());
        let plain = parse("M/M/1").unwrap();
        assert_eq!((plain.arrivals, plain.service), (Letter::Markov, Letter::Markov));
        assert!(!plain.servers_given() && !plain.is_closed());
        let erlang = parse("D/E3/m/K").unwrap();
        assert_eq!(erlang.service, Letter::Erlang(Some(3)));
        assert!(erlang.servers_given() && erlang.capacity_given());
        let loss = parse("M/M/c/c").unwrap();
        assert!(loss.servers_given() && !loss.capacity_given());
        assert!(parse("M/M/2//10").unwrap().is_closed());
        assert!(parse("M/M/m//N").unwrap().population_given());
        assert_eq!(parse("M/G/1-LCFS-PR").unwrap().suffix, Suffix::LcfsPr);
        assert_eq!(parse("M/M/m+M").unwrap().suffix, Suffix::Impatient);
        assert_eq!(parse("M/M/m+G").unwrap().suffix, Suffix::ImpatientGeneral);
        assert_eq!(parse("M/G/1-SRPT").unwrap().suffix, Suffix::Srpt);
        assert!(parse("M^[x]/M/1").unwrap().batches);
        assert_eq!(parse("MAP/PH/m").unwrap().arrivals, Letter::General);
        for none in ["", "M", "M/M", "M/M/", "M/X/1", "M/M/1/2/3/4", "M/M/1-slow", "mm1", "E/M/1"] {
            assert!(parse(none).is_none(), "{none}");
        }
    }
}
