//! What an action asks for and what a worker offers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Properties that an action asks for: each must be offered.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Platform(BTreeSet<(String, String)>);

/// Properties that a worker offers; one name may have several values.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offer(BTreeMap<String, BTreeSet<String>>);

impl Platform {
    /// Of names and values.
    pub fn new(properties: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(properties.into_iter().collect())
    }
}

impl Offer {
    /// Of names and values.
    pub fn new(properties: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut offer: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, value) in properties {
            offer.entry(name).or_default().insert(value);
        }
        Self(offer)
    }

    /// Whether it has everything that `platform` asks for.
    pub fn fits(&self, platform: &Platform) -> bool {
        let has = |(name, value): &(String, String)| {
            self.0.get(name).is_some_and(|values| values.contains(value))
        };
        platform.0.iter().all(has)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.0.iter().flat_map(|(name, all)| all.iter().map(move |value| (name, value))))
    }
}

fn list<'a>(
    f: &mut fmt::Formatter<'_>,
    properties: impl Iterator<Item = (&'a String, &'a String)>,
) -> fmt::Result {
    f.write_str("{")?;
    for (index, (name, value)) in properties.enumerate() {
        write!(f, "{}{name}={value}", if index == 0 { "" } else { ", " })?;
    }
    f.write_str("}")
}

/// Words for an action that no worker can run.
pub(super) fn no_match(asked: &Platform, offers: &[Offer]) -> String {
    const SHOWN: usize = 5;
    if offers.is_empty() {
        return format!("the action asks for the platform {asked}, and there are no workers");
    }
    let mut words = format!("no worker offers the platform {asked} that the action asks for; ");
    words.push_str("workers offer ");
    let shown: Vec<String> = offers.iter().take(SHOWN).map(ToString::to_string).collect();
    words.push_str(&shown.join(" or "));
    if offers.len() > SHOWN {
        words.push_str(&format!(" or one of {} more", offers.len() - SHOWN));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &[(&str, &str)]) -> Vec<(String, String)> {
        text.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_worker_fits_when_it_offers_every_property_asked_for() {
        let offer = Offer::new(pairs(&[("OSFamily", "linux"), ("pool", "a"), ("pool", "b")]));
        let fits = |asked: &[(&str, &str)]| offer.fits(&Platform::new(pairs(asked)));
        assert!(fits(&[]));
        assert!(fits(&[("pool", "b"), ("OSFamily", "linux")]));
        assert!(!fits(&[("pool", "c")]));
        assert!(!fits(&[("pool", "a"), ("gpu", "1")]));
    }

    #[test]
    fn the_refusal_says_what_was_asked_and_what_there_is() {
        let asked = Platform::new(pairs(&[("gpu", "1")]));
        let words = no_match(&asked, &[Offer::new(pairs(&[("pool", "a")])), Offer::default()]);
        assert_eq!(
            words,
            "no worker offers the platform {gpu=1} that the action asks for; \
             workers offer {pool=a} or {}"
        );
    }
}
