//! Inputs made from others, by chance that can be repeated.

/// Numbers at which readers go wrong.
const EDGES: &[&str] = &[
    "0",
    "-1",
    "1",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e309",
    "NaN",
    "inf",
    "-0",
    "+5",
    "007",
    "1e-400",
];

/// Makes inputs. The same seed and the same corpus give the same inputs.
#[derive(Debug)]
pub struct Mutator {
    state: u64,
    longest: usize,
}

impl Mutator {
    /// With a seed, and the length that inputs may have.
    #[must_use]
    pub fn new(seed: u64, longest: usize) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, longest }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % bound.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }

    /// One of the corpus with a few changes.
    pub fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus.get(self.below(corpus.len())).cloned().unwrap_or_default();
        for _ in 0..=self.below(5) {
            self.change(&mut input, corpus);
        }
        input.truncate(self.longest);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        match self.below(11) {
            0 => self.flip(input),
            1 => {
                let byte = self.byte();
                if let Some(place) = input.get_mut(at) {
                    *place = byte;
                }
            }
            2 => {
                let byte = self.byte();
                input.insert(at, byte);
            }
            3 => {
                let end = (at + 1 + self.below(8)).min(input.len());
                input.drain(at.min(end)..end);
            }
            4 => input.truncate(at),
            5 => self.repeat(input, at),
            6 => self.splice(input, at, corpus),
            7 => self.edge(input),
            8 => {
                let separators = b" \r\n\t\0:;,.=\"'[]{}()/\\%#\x80\xff";
                let byte = separators[self.below(separators.len())];
                input.insert(at, byte);
            }
            9 => self.swap(input),
            _ => {
                if let Some(place) = input.get_mut(at) {
                    *place = place.wrapping_add(1);
                }
            }
        }
    }

    fn flip(&mut self, input: &mut [u8]) {
        let (at, bit) = (self.below(input.len()), self.below(8));
        if let Some(byte) = input.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    /// A part once more, or many times.
    fn repeat(&mut self, input: &mut Vec<u8>, at: usize) {
        let end = (at + 1 + self.below(24)).min(input.len());
        let part = input[at.min(end)..end].to_vec();
        let times = if self.below(8) == 0 { 1 + self.below(400) } else { 1 };
        let room = self.longest.saturating_sub(input.len());
        let more: Vec<u8> =
            part.iter().copied().cycle().take((part.len() * times).min(room)).collect();
        input.splice(at..at, more);
    }

    /// A part of another one.
    fn splice(&mut self, input: &mut Vec<u8>, at: usize, corpus: &[Vec<u8>]) {
        let Some(other) = corpus.get(self.below(corpus.len())) else { return };
        let from = self.below(other.len() + 1);
        let to = (from + self.below(64)).min(other.len());
        let end = (at + self.below(to - from + 1)).min(input.len());
        input.splice(at..end, other[from..to].iter().copied());
    }

    /// A number by one at which readers go wrong.
    fn edge(&mut self, input: &mut Vec<u8>) {
        let edge = EDGES[self.below(EDGES.len())];
        let begin = self.below(input.len() + 1);
        let digit = input[begin..].iter().position(u8::is_ascii_digit);
        let Some(start) = digit.map(|offset| begin + offset) else { return };
        let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        input.splice(start..start + length, edge.bytes());
    }

    /// Two parts change places.
    fn swap(&mut self, input: &mut [u8]) {
        let (one, other) = (self.below(input.len()), self.below(input.len()));
        let (first, second) = (one.min(other), one.max(other));
        let length = (1 + self.below(16)).min(second - first).min(input.len() - second);
        for offset in 0..length {
            input.swap(first + offset, second + offset);
        }
    }
}
