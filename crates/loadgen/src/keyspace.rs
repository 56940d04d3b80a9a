//! Keys and values: which exist, how long they are, how they are chosen, what a value must be.
//!
//! Everything about a key follows from its number and the seed, so any thread, and a later run
//! with the same seed, can write a value and check one without remembering it.

use kendall_tier::distribution::{index_below, unit_interval};
use rand_distr::Distribution as _;

use crate::random::{Purpose, Random, stream};

/// Longest key of the protocol.
const LONGEST_KEY: usize = 250;

/// Longest value that may be asked for; memcached's default limit of an item is 1 MiB.
const LONGEST_VALUE: usize = 128 << 20;

/// Longest value of a drawn size, so that an item stays below memcached's default of 1 MiB.
const LONGEST_DRAWN_VALUE: usize = 1_000_000;

/// The letter and the digits that every key needs to be its own.
const TAG_BYTES: usize = 16;

/// Different places in the filler where values start.
const FILLER_STARTS: usize = 4_096;

/// Marks the number of a key that was never stored.
const ABSENT: u64 = 1 << 63;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    Fixed(usize),
    /// Uniform from the first to the second, both included.
    Uniform(usize, usize),
    /// The ETC pool of Facebook: keys by a generalized extreme value distribution, values by a
    /// table below 15 bytes and a generalized Pareto distribution above [Atikoglu12 §5].
    Etc,
}

impl Size {
    /// Reads `1KiB`, `uniform:10B..2KiB` or `etc`.
    pub fn parse(text: &str) -> Result<Self, KeyspaceError> {
        let bytes = |text: &str| {
            kendall_units::parse_bytes(text).ok().and_then(|bytes| usize::try_from(bytes).ok())
        };
        let refuse = || KeyspaceError::Size { text: text.to_owned() };
        if text == "etc" {
            return Ok(Self::Etc);
        }
        if let Some(range) = text.strip_prefix("uniform:") {
            let (low, high) = range.split_once("..").ok_or_else(refuse)?;
            let pair = bytes(low).zip(bytes(high)).filter(|(low, high)| low <= high);
            return pair.map(|(low, high)| Self::Uniform(low, high)).ok_or_else(refuse);
        }
        bytes(text.strip_prefix("constant:").unwrap_or(text)).map(Self::Fixed).ok_or_else(refuse)
    }

    fn largest(self) -> usize {
        match self {
            Self::Fixed(bytes) | Self::Uniform(_, bytes) => bytes,
            Self::Etc => LONGEST_DRAWN_VALUE,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeyChoice {
    /// Every key as likely.
    Uniform,
    /// Key number r (from 1) with a probability proportional to r^−exponent.
    Zipf(f64),
    /// A share of the keys gets a share of the requests; both uniform within.
    Hotspot { keys: f64, requests: f64 },
    /// Always the first key.
    Fixed,
}

impl KeyChoice {
    /// Reads `uniform`, `zipf:0.99`, `hotspot:10%,90%` or `fixed`.
    pub fn parse(text: &str) -> Result<Self, KeyspaceError> {
        let refuse = || KeyspaceError::Choice { text: text.to_owned() };
        match text.split_once(':') {
            None if text == "uniform" => Ok(Self::Uniform),
            None if text == "fixed" => Ok(Self::Fixed),
            Some(("zipf", exponent)) => exponent
                .parse()
                .ok()
                .filter(|exponent: &f64| exponent.is_finite() && *exponent >= 0.0)
                .map(Self::Zipf)
                .ok_or_else(refuse),
            Some(("hotspot", shares)) => {
                let (keys, requests) = shares.split_once(',').ok_or_else(refuse)?;
                let keys = kendall_units::parse_share(keys).map_err(|_| refuse())?;
                let requests = kendall_units::parse_share(requests).map_err(|_| refuse())?;
                Ok(Self::Hotspot { keys, requests })
            }
            _ => Err(refuse()),
        }
    }
}

/// Draws numbers below a count as a choice has them.
#[derive(Debug)]
pub(crate) struct Chooser {
    choice: KeyChoice,
    count: usize,
    hot: usize,
    zipf: Option<rand_distr::Zipf<f64>>,
}

impl Chooser {
    pub(crate) fn new(choice: KeyChoice, count: usize) -> Self {
        let count = count.max(1);
        let zipf = match choice {
            KeyChoice::Zipf(exponent) => {
                rand_distr::Zipf::new(kendall_units::exact_f64(count), exponent).ok()
            }
            _ => None,
        };
        let hot = match choice {
            KeyChoice::Hotspot { keys: share, .. } => {
                let hot = kendall_units::whole_u64(kendall_units::exact_f64(count) * share);
                usize::try_from(hot).unwrap_or(count).clamp(1, count)
            }
            _ => count,
        };
        Self { choice, count, hot, zipf }
    }

    pub(crate) fn choose(&self, random: &mut Random) -> u64 {
        match self.choice {
            KeyChoice::Uniform => index_below(random, self.count) as u64,
            KeyChoice::Zipf(_) => {
                let rank = self.zipf.as_ref().map_or(1.0, |zipf| zipf.sample(random));
                kendall_units::whole_u64(rank).clamp(1, self.count as u64) - 1
            }
            KeyChoice::Hotspot { requests, .. } => {
                let cold = self.count - self.hot;
                if cold == 0 || unit_interval(random) < requests {
                    index_below(random, self.hot) as u64
                } else {
                    (self.hot + index_below(random, cold)) as u64
                }
            }
            KeyChoice::Fixed => 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyspacePlan {
    pub keys: u64,
    pub key_size: Size,
    pub value_size: Size,
    pub choice: KeyChoice,
    /// What sizes and contents follow from.
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyspaceError {
    #[error("`{text}` is not a size; write it like `1KiB`, `uniform:10B..2KiB` or `etc`")]
    Size { text: String },
    #[error(
        "`{text}` is not a choice of keys; write `uniform`, `zipf:0.99`, `hotspot:10%,90%` \
         (10% of the keys get 90% of the requests) or `fixed`"
    )]
    Choice { text: String },
    #[error("{keys} keys: there are from 1 to {most}")]
    Keys { keys: u64, most: u64 },
    #[error("keys of {bytes} bytes: {keys} keys need from {least} to {LONGEST_KEY} bytes each")]
    KeySize { bytes: usize, keys: u64, least: usize },
    #[error("values of {bytes} bytes: the limit is {LONGEST_VALUE} bytes")]
    ValueSize { bytes: usize },
}

/// All keys and values of a load; shared by its threads.
#[derive(Debug)]
pub struct Keyspace {
    plan: KeyspacePlan,
    chooser: Chooser,
    /// Sizes by key number where they differ: key, value.
    sizes: Vec<(u8, u32)>,
    digits: usize,
    filler: Vec<u8>,
}

impl Keyspace {
    pub fn new(plan: KeyspacePlan) -> Result<Self, KeyspaceError> {
        const MOST_KEYS: u64 = 100_000_000;
        let keys = usize::try_from(plan.keys).unwrap_or(usize::MAX);
        if !(1..=MOST_KEYS).contains(&plan.keys) {
            return Err(KeyspaceError::Keys { keys: plan.keys, most: MOST_KEYS });
        }
        let digits = plan.keys.to_string().len();
        if let Size::Fixed(bytes) | Size::Uniform(bytes, _) = plan.key_size
            && !(digits + 1..=LONGEST_KEY).contains(&bytes.min(plan.key_size.largest()))
        {
            return Err(KeyspaceError::KeySize { bytes, keys: plan.keys, least: digits + 1 });
        }
        if let Size::Uniform(_, bytes) = plan.key_size
            && bytes > LONGEST_KEY
        {
            return Err(KeyspaceError::KeySize { bytes, keys: plan.keys, least: digits + 1 });
        }
        if plan.value_size != Size::Etc && plan.value_size.largest() > LONGEST_VALUE {
            return Err(KeyspaceError::ValueSize { bytes: plan.value_size.largest() });
        }
        let mut random = stream(plan.seed, Purpose::Sizes, 0);
        let all_alike = |size| matches!(size, Size::Fixed(_));
        let sizes = if all_alike(plan.key_size) && all_alike(plan.value_size) {
            Vec::new()
        } else {
            (0..keys).map(|_| draw_sizes(&plan, digits, &mut random)).collect()
        };
        let filler_bytes = plan.value_size.largest() + FILLER_STARTS;
        let filler = (0..filler_bytes).map(|_| printable(&mut random)).collect();
        Ok(Self { plan, chooser: Chooser::new(plan.choice, keys), sizes, digits, filler })
    }

    pub fn keys(&self) -> u64 {
        self.plan.keys
    }

    /// Draws the number of a key.
    pub fn choose(&self, random: &mut Random) -> u64 {
        self.chooser.choose(random)
    }

    /// The same, but for a share of the draws one that was never stored.
    pub(crate) fn choose_or_miss(&self, misses: f64, random: &mut Random) -> u64 {
        let key = self.choose(random);
        if misses > 0.0 && unit_interval(random) < misses { self.absent(key) } else { key }
    }

    /// The number of a key that was never stored, of the same size as `key`.
    pub fn absent(&self, key: u64) -> u64 {
        key | ABSENT
    }

    /// Appends the text of a key: a letter and its number, filled up with zeros.
    pub fn write_key(&self, key: u64, out: &mut Vec<u8>) {
        out.push(if key & ABSENT == 0 { b'k' } else { b'm' });
        write_decimal(out, key & !ABSENT, self.key_bytes(key) - 1);
    }

    /// Whether `text` is the key of this number.
    pub fn is_key(&self, key: u64, text: &[u8]) -> bool {
        let letter = if key & ABSENT == 0 { b'k' } else { b'm' };
        let Some((first, digits)) = text.split_first() else { return false };
        let number = digits.iter().try_fold(0_u64, |number, digit| {
            digit.is_ascii_digit().then(|| number.wrapping_mul(10) + u64::from(digit - b'0'))
        });
        *first == letter && text.len() == self.key_bytes(key) && number == Some(key & !ABSENT)
    }

    pub fn value_bytes(&self, key: u64) -> usize {
        match self.plan.value_size {
            Size::Fixed(bytes) => bytes,
            _ => self.size(key).1 as usize,
        }
    }

    pub fn write_value(&self, key: u64, out: &mut Vec<u8>) {
        let bytes = self.value_bytes(key);
        let tagged = bytes.min(TAG_BYTES);
        out.extend_from_slice(&tag(key)[..tagged]);
        let start = filler_start(key);
        out.extend_from_slice(&self.filler[start + tagged..start + bytes]);
    }

    /// Whether `piece` is what the value of `key` has from `offset` on.
    pub fn value_matches(&self, key: u64, offset: usize, piece: &[u8]) -> bool {
        if offset + piece.len() > self.value_bytes(key) {
            return false;
        }
        let in_tag = piece.len().min(TAG_BYTES.saturating_sub(offset));
        let start = filler_start(key) + offset;
        let tag = tag(key);
        (in_tag == 0 || piece[..in_tag] == tag[offset..offset + in_tag])
            && piece[in_tag..] == self.filler[start + in_tag..start + piece.len()]
    }

    fn key_bytes(&self, key: u64) -> usize {
        match self.plan.key_size {
            Size::Fixed(bytes) => bytes,
            _ => usize::from(self.size(key).0).max(self.digits + 1),
        }
    }

    fn size(&self, key: u64) -> (u8, u32) {
        let number = usize::try_from(key & !ABSENT).unwrap_or(usize::MAX);
        self.sizes.get(number).copied().unwrap_or_default()
    }
}

fn draw_sizes(plan: &KeyspacePlan, digits: usize, random: &mut Random) -> (u8, u32) {
    let mut draw = |size: Size, etc: fn(f64) -> f64, largest: usize| match size {
        Size::Fixed(bytes) => bytes,
        Size::Uniform(low, high) => low + index_below(random, high - low + 1),
        Size::Etc => {
            let bytes = kendall_units::whole_u64(etc(unit_interval(random)).round());
            usize::try_from(bytes).unwrap_or(largest).min(largest)
        }
    };
    let key = draw(plan.key_size, etc_key_bytes, LONGEST_KEY).max(digits + 1);
    let value = draw(plan.value_size, etc_value_bytes, LONGEST_DRAWN_VALUE);
    (u8::try_from(key).unwrap_or(u8::MAX), u32::try_from(value).unwrap_or(u32::MAX))
}

/// Key size of the ETC pool at quantile `u`: generalized extreme value distribution with location
/// 30.7984, scale 8.20449, shape 0.078688 [Atikoglu12 §5.1].
fn etc_key_bytes(u: f64) -> f64 {
    const LOCATION: f64 = 30.7984;
    const SCALE: f64 = 8.20449;
    const SHAPE: f64 = 0.078_688;
    LOCATION + SCALE * ((-(u.max(f64::MIN_POSITIVE)).ln()).powf(-SHAPE) - 1.0) / SHAPE
}

/// Value size of the ETC pool at quantile `u`: probabilities of 0 to 14 bytes, and above them a
/// generalized Pareto distribution with scale 214.476 and shape 0.348238 [Atikoglu12 §5.2].
fn etc_value_bytes(u: f64) -> f64 {
    const SMALL: [f64; 15] = [
        0.005_36, 0.000_47, 0.178_20, 0.092_39, 0.000_18, 0.027_40, 0.000_65, 0.006_06, 0.000_23,
        0.008_37, 0.008_37, 0.089_89, 0.000_92, 0.003_26, 0.019_80,
    ];
    const SCALE: f64 = 214.476;
    const SHAPE: f64 = 0.348_238;
    let mut below = 0.0;
    for (bytes, share) in SMALL.iter().enumerate() {
        below += share;
        if u < below {
            return kendall_units::exact_f64(bytes);
        }
    }
    let rest = (1.0 - u) / (1.0 - below);
    kendall_units::exact_f64(SMALL.len()) + SCALE * (rest.powf(-SHAPE) - 1.0) / SHAPE
}

fn printable(random: &mut Random) -> u8 {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    ALPHABET[index_below(random, ALPHABET.len())]
}

/// The first bytes of a value: its key's number in hexadecimal.
fn tag(key: u64) -> [u8; TAG_BYTES] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut tag = [0; TAG_BYTES];
    for (byte, pair) in key.to_be_bytes().iter().zip(tag.chunks_exact_mut(2)) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    tag
}

/// Where in the filler the value of a key starts (a multiplicative hash, Knuth vol. 3 §6.4).
fn filler_start(key: u64) -> usize {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    usize::try_from(key.wrapping_mul(GOLDEN) >> 52).unwrap_or(0) % FILLER_STARTS
}

/// Appends `number` in decimal with at least `width` digits.
pub(crate) fn write_decimal(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
    let written = digits.len() - at;
    for _ in written.max(digits.len())..width {
        out.push(b'0');
    }
    out.extend_from_slice(&digits[digits.len() - width.clamp(written.max(1), digits.len())..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyspace(key_size: Size, value_size: Size) -> Keyspace {
        let plan = KeyspacePlan {
            keys: 20_000,
            key_size,
            value_size,
            choice: KeyChoice::Uniform,
            seed: 7,
        };
        Keyspace::new(plan).unwrap()
    }

    #[test]
    fn decimals_have_their_width() {
        for (number, width, expected) in
            [(0, 1, "0"), (42, 1, "42"), (42, 5, "00042"), (7, 24, "000000000000000000000007")]
        {
            let mut out = Vec::new();
            write_decimal(&mut out, number, width);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let mut out = Vec::new();
        write_decimal(&mut out, u64::MAX, 3);
        assert_eq!(String::from_utf8(out).unwrap(), u64::MAX.to_string());
    }

    #[test]
    fn a_value_matches_its_own_key_in_every_piece_and_no_other() {
        let keyspace = keyspace(Size::Fixed(16), Size::Uniform(0, 100));
        for key in [0, 1, 777, 19_999] {
            let mut value = Vec::new();
            keyspace.write_value(key, &mut value);
            assert_eq!(value.len(), keyspace.value_bytes(key));
            for split in 0..=value.len() {
                assert!(keyspace.value_matches(key, 0, &value[..split]));
                assert!(keyspace.value_matches(key, split, &value[split..]));
            }
            if value.len() >= TAG_BYTES {
                assert!(!keyspace.value_matches(key + 1, 0, &value));
            }
            let mut text = Vec::new();
            keyspace.write_key(key, &mut text);
            assert!(keyspace.is_key(key, &text) && text.len() == 16);
            assert!(!keyspace.is_key(key + 1, &text));
            assert!(!keyspace.is_key(keyspace.absent(key), &text));
        }
    }

    /// Means by numerical integration of the published quantile functions: keys 35.99 bytes (GEV:
    /// µ + σ(Γ(1−k) − 1)/k = 30.7984 + 8.20449·(1.05044 − 1)/0.078688), values
    /// Σ p·b + (1 − Σp)(15 + σ/(1−k)) = 3.27 + 0.5591·(15 + 329.07) = 195.7 bytes. The tolerance
    /// is three standard errors of 20,000 draws: GEV deviation 11.9 bytes; generalized Pareto
    /// deviation σ/((1−k)√(1−2k)) = 597 bytes, in the mixture about 480.
    #[test]
    fn etc_sizes_have_the_published_means() {
        let keyspace = keyspace(Size::Etc, Size::Etc);
        let keys = (0..20_000).map(|key| kendall_units::exact_f64(keyspace.key_bytes(key)));
        let values = (0..20_000).map(|key| kendall_units::exact_f64(keyspace.value_bytes(key)));
        let mean = |sum: f64| sum / 20_000.0;
        let key_mean = mean(keys.sum());
        let value_mean = mean(values.sum());
        assert!((key_mean - 35.99).abs() < 0.5, "{key_mean}");
        assert!((value_mean - 195.7).abs() < 10.2, "{value_mean}");
    }

    #[test]
    fn a_hotspot_gets_its_share() {
        let plan = KeyspacePlan {
            keys: 1_000,
            key_size: Size::Fixed(16),
            value_size: Size::Fixed(1),
            choice: KeyChoice::parse("hotspot:10%,90%").unwrap(),
            seed: 1,
        };
        let keyspace = Keyspace::new(plan).unwrap();
        let mut random = stream(1, Purpose::Requests, 0);
        let hot = (0..10_000).filter(|_| keyspace.choose(&mut random) < 100).count();
        // Four standard deviations of a binomial: 4·√(10,000·0.9·0.1) = 120.
        assert!((8_880..=9_120).contains(&hot), "{hot}");
    }

    #[test]
    fn keys_too_short_for_their_number_are_refused() {
        let plan = KeyspacePlan {
            keys: 20_000,
            key_size: Size::Fixed(5),
            value_size: Size::Fixed(1),
            choice: KeyChoice::Uniform,
            seed: 1,
        };
        let error = Keyspace::new(plan).unwrap_err();
        assert_eq!(error.to_string(), "keys of 5 bytes: 20000 keys need from 6 to 250 bytes each");
    }
}
