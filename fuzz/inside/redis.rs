//! For `fuzz/`: replies of Redis.

use super::reply::{Meaning, ReplyReader};
use crate::driver::{ErrorKind, Progress, Reply};

/// Reads the reply to a pipeline of so many commands.
pub(crate) fn reader(commands: u8) -> impl FnMut(&[u8]) -> Progress {
    let mut reader = ReplyReader::default();
    let mut left = usize::from(commands % 8) + 1;
    move |input| {
        let mut consumed = 0;
        loop {
            let (taken, meaning) = reader.read(&input[consumed..]);
            consumed += taken;
            let reply = match meaning {
                None => return Progress { consumed, reply: None },
                Some(Err(_)) => Reply::broken(ErrorKind::Garbage),
                Some(Ok(_)) if left > 1 => {
                    left -= 1;
                    continue;
                }
                Some(Ok(Meaning::Answer { found, missing })) => {
                    Reply { hits: found, misses: missing, ..Reply::default() }
                }
                Some(Ok(Meaning::Error(kind))) => Reply::refused(kind),
                Some(Ok(Meaning::Moved { .. } | Meaning::Ask { .. })) => {
                    Reply { onward: true, ..Reply::default() }
                }
            };
            return Progress { consumed, reply: Some(reply) };
        }
    }
}
