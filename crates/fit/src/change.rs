//! One change of a system, as what-if asks for it: of the load, of a tier, of a host.

use kendall_units::{parse_rate, parse_share, whole_u64};

/// No question is about so many times as much: what is written so long is a slip.
const MOST: f64 = 1e9;

/// What is changed, and to what. A model refuses what its observations do not determine.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Load of the system, 1/s.
    Rate(f64),
    /// Load of the system over that of now.
    Load(f64),
    /// How many times as many requests of a class there are.
    Class { class: String, times: f64 },
    /// How many of something a tier has.
    Count { tier: String, of: Counted, count: u32 },
    /// How many times as fast a tier works.
    Speed { tier: String, times: f64 },
    /// Hits of hits and misses at a tier: what is behind it is asked for misses only.
    HitRatio { tier: String, share: f64 },
    /// Cores of a host.
    Cores { host: String, count: u32 },
    /// How many times as fast the cores of a host are.
    HostSpeed { host: String, times: f64 },
    /// The host of a tier, or of the load generators.
    Placement { part: String, host: String },
}

/// What is counted at a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Whatever serves its requests.
    Servers,
    Instances,
    Workers,
    Threads,
    /// To the one tier behind it.
    Connections,
}

impl Counted {
    const ALL: [(&'static str, Self); 5] = [
        ("servers", Self::Servers),
        ("instances", Self::Instances),
        ("workers", Self::Workers),
        ("threads", Self::Threads),
        ("connections", Self::Connections),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, counted)| *counted)
    }
}

/// Names that a change may use.
#[derive(Debug, Clone)]
pub struct Names<'a> {
    pub tiers: Vec<&'a str>,
    /// The host, where there is only one.
    pub host: Option<&'a str>,
}

impl Names<'_> {
    fn tier(&self, name: &str) -> Result<String, String> {
        if self.tiers.contains(&name) {
            return Ok(name.to_owned());
        }
        Err(format!("no tier `{name}`; there are {}", self.tiers.join(", ")))
    }
}

impl Change {
    /// Reads `load`, `rate`, `class.NAME`, `cores`, `cpu_speed`, `hosts.HOST.cores`, `hosts.HOST.speed`,
    /// `placement.TIER`, `hit_ratio`, `TIER.hit_ratio`, `TIER.speed`, `TIER.servers` and the other counts of
    /// a tier, which may have `tiers.` before its name.
    ///
    /// # Errors
    /// What is accepted, in words.
    pub fn parse(key: &str, value: &str, names: &Names<'_>) -> Result<Self, String> {
        if let Some(part) = key.strip_prefix("placement.") {
            let part = if part == "generator" { part.to_owned() } else { names.tier(part)? };
            return Ok(Self::Placement { part, host: value.to_owned() });
        }
        if let Some(class) = key.strip_prefix("class.").filter(|_| !names.tiers.contains(&"class"))
        {
            let times =
                number(value, "a number from 0, such as 2: twice as many requests", |n| n >= 0.0)?;
            return Ok(Self::Class { class: class.to_owned(), times });
        }
        if let Some(rest) = key.strip_prefix("hosts.") {
            return match rest.rsplit_once('.') {
                Some((host, "cores")) => cores(host, value),
                Some((host, "speed")) => host_speed(host, value),
                _ => Err("write hosts.HOST.cores or hosts.HOST.speed".to_owned()),
            };
        }
        let only_host = |what: &str| {
            names
                .host
                .ok_or_else(|| format!("the runs had several hosts: name one by hosts.HOST.{what}"))
        };
        match key {
            "load" => Ok(Self::Load(positive(
                value,
                "a number above 0, such as 2: twice the present load",
            )?)),
            "rate" => parse_rate(value)
                .map(|rate| Self::Rate(rate.get()))
                .map_err(|error| error.to_string()),
            "cores" => cores(only_host("cores")?, value),
            "cpu_speed" => host_speed(only_host("speed")?, value),
            "hit_ratio" => match names.tiers.as_slice() {
                [only] => Ok(Self::HitRatio { tier: (*only).to_owned(), share: share(value)? }),
                _ => Err("name the tier by tiers.TIER.hit_ratio".to_owned()),
            },
            _ => Self::of_tier(key, value, names),
        }
    }

    fn of_tier(key: &str, value: &str, names: &Names<'_>) -> Result<Self, String> {
        let (name, what) = key.rsplit_once('.').ok_or_else(|| {
            format!("`{key}` is none of `load`, `rate`, `class.NAME`, `TIER.servers`, …")
        })?;
        let tier = names.tier(name.strip_prefix("tiers.").unwrap_or(name))?;
        match (what, Counted::named(what)) {
            (_, Some(of)) => Ok(Self::Count { tier, of, count: count(value)? }),
            ("speed", _) => {
                let times = positive(value, "a number above 0, such as 2: twice as fast")?;
                Ok(Self::Speed { tier, times })
            }
            ("hit_ratio", _) => Ok(Self::HitRatio { tier, share: share(value)? }),
            _ => {
                let counts: Vec<&str> = Counted::ALL.iter().map(|(name, _)| *name).collect();
                Err(format!(
                    "`{what}` cannot be changed; speed, hit_ratio, {} of a tier can",
                    counts.join(", ")
                ))
            }
        }
    }
}

fn number(value: &str, expected: &str, accept: impl Fn(f64) -> bool) -> Result<f64, String> {
    let parsed: Option<f64> = value.parse().ok();
    parsed
        .filter(|number| *number < MOST && accept(*number))
        .ok_or_else(|| format!("`{value}` is refused; expected {expected}"))
}

fn positive(value: &str, expected: &str) -> Result<f64, String> {
    number(value, expected, |number| number > 0.0)
}

fn count(value: &str) -> Result<u32, String> {
    let found = number(value, "a whole number from 1", |n| n >= 1.0 && n.fract() == 0.0)?;
    Ok(u32::try_from(whole_u64(found)).unwrap_or(u32::MAX))
}

fn share(value: &str) -> Result<f64, String> {
    let parsed = parse_share(value).ok().filter(|share| (0.0..=1.0).contains(share));
    parsed.ok_or_else(|| format!("`{value}` is refused; expected a share from 0 to 1"))
}

fn cores(host: &str, value: &str) -> Result<Change, String> {
    Ok(Change::Cores { host: host.to_owned(), count: count(value)? })
}

fn host_speed(host: &str, value: &str) -> Result<Change, String> {
    let times = positive(value, "a number above 0, such as 2: twice as fast")?;
    Ok(Change::HostSpeed { host: host.to_owned(), times })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_what_is_no_change_is_refused() {
        let names = Names { tiers: vec!["web", "db"], host: Some("here") };
        let parse = |text: &str| {
            let (key, value) = text.split_once('=').unwrap();
            Change::parse(key, value, &names)
        };
        let web = || "web".to_owned();
        let count = |of, count| Ok(Change::Count { tier: web(), of, count });
        assert_eq!(parse("load=2"), Ok(Change::Load(2.0)));
        assert_eq!(parse("rate=500/s"), Ok(Change::Rate(500.0)));
        assert_eq!(parse("web.servers=6"), count(Counted::Servers, 6));
        assert_eq!(parse("tiers.web.workers=3"), count(Counted::Workers, 3));
        assert_eq!(parse("web.speed=1.5"), Ok(Change::Speed { tier: web(), times: 1.5 }));
        assert_eq!(parse("web.hit_ratio=90%"), Ok(Change::HitRatio { tier: web(), share: 0.9 }));
        let cores = |host: &str, count| Ok(Change::Cores { host: host.to_owned(), count });
        assert_eq!(parse("cores=4"), cores("here", 4));
        assert_eq!(parse("hosts.there.cores=4"), cores("there", 4));
        let moved = Change::Placement { part: web(), host: "there".to_owned() };
        assert_eq!(parse("placement.web=there"), Ok(moved));
        for (text, says) in [
            ("wb.servers=4", "no tier `wb`; there are web, db"),
            ("cores=0", "a whole number from 1"),
            ("web.threads=1.5", "a whole number from 1"),
            ("load=-1", "above 0"),
            ("load=1e12", "above 0"),
            ("web.hit_ratio=1.2", "a share from 0 to 1"),
            ("hit_ratio=0.5", "name the tier"),
            ("web.memory=2", "cannot be changed"),
            ("other=2", "is none of"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(says), "{text}: {said}");
        }
        let several = Names { host: None, ..names.clone() };
        assert!(
            Change::parse("cpu_speed", "2", &several).unwrap_err().contains("hosts.HOST.speed")
        );
    }
}
