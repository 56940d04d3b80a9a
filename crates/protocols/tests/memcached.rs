//! The memcached codec on whatever a network may bring: it never panics, always gets on, and reads
//! the same from bytes in one piece and in many.

use kendall_protocols::memcached::{
    Command, Element, Framing, LINE_BYTES, Limits, Parsed, Store, element, is_reply_to, parse,
};
use proptest::prelude::*;

const LIMITS: Limits = Limits { value_bytes: 64, get_line_bytes: 1 << 16 };

/// Which answers each command that stores may get, as memcached's protocol has them: `EXISTS` and `NOT_FOUND` belong to
/// `cas` alone, and `NOT_STORED` to the others.
#[test]
fn each_store_command_has_its_own_answers() {
    const ANSWERS: [&str; 4] = ["STORED", "NOT_STORED", "EXISTS", "NOT_FOUND"];
    for (store, may) in [
        (Store::Set, [true, true, false, false]),
        (Store::Add, [true, true, false, false]),
        (Store::Replace, [true, true, false, false]),
        (Store::Append, [true, true, false, false]),
        (Store::Prepend, [true, true, false, false]),
        (Store::Cas, [true, false, true, true]),
    ] {
        for (answer, may) in ANSWERS.into_iter().zip(may) {
            let line = format!("{answer}\r\n");
            let is_reply = is_reply_to(Command::Store(store), line.as_bytes());
            assert_eq!(is_reply, may, "{store:?} {answer}");
        }
        for error in ["ERROR\r\n", "CLIENT_ERROR x\r\n", "SERVER_ERROR x\r\n"] {
            assert!(is_reply_to(Command::Store(store), error.as_bytes()), "{store:?} {error}");
        }
        for other in ["DELETED\r\n", "END\r\n", "HD\r\n", "OK\r\n", "1\r\n"] {
            assert!(!is_reply_to(Command::Store(store), other.as_bytes()), "{store:?} {other}");
        }
    }
}

/// What a stream held, without what was dropped on the way.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Request { bytes: Vec<u8>, key: Vec<u8>, keys: usize },
    Refusal(&'static [u8]),
    Close,
}

/// Reads a stream that comes in the given pieces, as a server does.
fn read(pieces: &[&[u8]]) -> Vec<Seen> {
    let (mut buffer, mut needed, mut swallow) = (Vec::new(), 0, 0_usize);
    let mut seen = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let dropped = swallow.min(buffer.len());
            buffer.drain(..dropped);
            swallow -= dropped;
            if buffer.is_empty() || swallow > 0 || buffer.len() < needed {
                break;
            }
            match parse(&buffer, &LIMITS) {
                Parsed::Incomplete(more) => {
                    assert!(more > buffer.len(), "{more} bytes are here: {buffer:?}");
                    needed = more;
                }
                Parsed::Close => {
                    seen.push(Seen::Close);
                    return seen;
                }
                parsed => {
                    needed = 0;
                    swallow = take(parsed, &mut buffer, &mut seen);
                }
            }
        }
    }
    seen
}

/// Takes a request or a refusal from the buffer; says how many bytes are to be dropped after it.
fn take(parsed: Parsed, buffer: &mut Vec<u8>, seen: &mut Vec<Seen>) -> usize {
    match parsed {
        Parsed::Request(request) => {
            assert!((1..=buffer.len()).contains(&request.consumed));
            let bytes: Vec<u8> = buffer.drain(..request.consumed).collect();
            assert!(request.line.end <= request.consumed);
            assert!(request.key.end <= request.line.end);
            if let Some(value) = request.value {
                assert_eq!(value.end, request.consumed);
                assert!(value.len() <= LIMITS.value_bytes + 2);
                // Whether a CR LF ends it is the server's to say: it takes as many bytes anyway.
            }
            let key = request.key.of(&bytes).to_vec();
            assert!(!key.iter().any(|byte| b" \n\0".contains(byte)), "{key:?}");
            seen.push(Seen::Request { bytes, key, keys: request.keys });
            0
        }
        Parsed::Refusal(refusal) => {
            assert!(refusal.consumed <= buffer.len());
            assert!(refusal.consumed + refusal.swallow > 0, "no way on: {buffer:?}");
            seen.push(Seen::Refusal(refusal.answer));
            buffer.drain(..refusal.consumed);
            refusal.swallow
        }
        other => panic!("{other:?} holds nothing"),
    }
}

/// Words of the protocol, right and wrong, and noise.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let commands = vec![
        "get",
        "gets",
        "gat",
        "gats",
        "set",
        "add",
        "cas",
        "append",
        "incr",
        "decr",
        "touch",
        "delete",
        "mg",
        "ms",
        "md",
        "ma",
        "mn",
        "me",
        "flush_all",
        "verbosity",
        "version",
        "stats",
        "noreply",
        "quit",
        "shutdown",
        "watch",
        "q",
        "v",
        "C12",
        "T0",
        "b",
        "MS",
    ];
    let rest = vec![
        " ",
        " ",
        " ",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        " 0 0 3\r\nabc\r\n",
        " 0 0 3\r\nabcd\r\n",
        " 0 0 70\r\n",
        " 3\r\nxyz\r\n",
        " -1",
        " 99999999999999999999",
        "\0",
    ];
    let text = |text: &str| text.as_bytes().to_vec();
    let word = prop_oneof![
        6 => prop::sample::select(commands).prop_map(text),
        6 => prop::sample::select(rest).prop_map(text),
        2 => "[a-z]{1,6}".prop_map(String::into_bytes),
        1 => (240_usize..260).prop_map(|bytes| vec![b'k'; bytes]),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

/// A line that has no end yet is judged by what is there, so what is said of lines beyond the
/// limit may depend on the pieces; all others must not.
fn has_long_line(stream: &[u8]) -> bool {
    stream.split(|byte| *byte == b'\n').any(|line| line.len() >= LINE_BYTES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn requests_are_the_same_in_one_piece_and_in_many(
        stream in stream(),
        cut in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!has_long_line(&stream));
        let whole = read(&[&stream]);
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(&read(&bytes), &whole);
        let (first, second) = stream.split_at(cut.index(stream.len() + 1));
        prop_assert_eq!(&read(&[first, second]), &whole);
    }

    #[test]
    fn noise_is_never_more_than_refused(stream in prop::collection::vec(any::<u8>(), 0..4_096)) {
        read(&[&stream]);
    }

    /// Elements of a reply lie in the buffer, and what is a whole element stays one whatever
    /// follows it.
    #[test]
    fn elements_lie_in_the_buffer_and_do_not_depend_on_what_follows(
        head in prop::sample::select(vec![
            "VALUE k 0 3\r\nabc\r\n", "VALUE k 0 3 17\r\nabc\r\n", "END\r\n", "VA 3 f1 c9\r\nabc\r\n",
            "HD\r\n", "EN\r\n", "MN\r\n", "STAT a b\r\n", "12\r\n", "SERVER_ERROR x\r\n",
            "VALUE k\r\n", "VALUE k 0 99999999999999999999\r\n", "VA x\r\n", "\r\n", "NF", "",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut buffer = head.as_bytes().to_vec();
        buffer.extend_from_slice(&rest);
        for framing in
            [Framing::Line, Framing::Values, Framing::Stats, Framing::Meta, Framing::Quiet]
        {
            let found = element(framing, &buffer);
            match found {
                Ok(Element::Value { header, key, unique, .. }) => {
                    prop_assert!(header <= buffer.len() && key.end <= header);
                    prop_assert!(unique.is_none_or(|unique| unique.end <= header));
                }
                Ok(Element::Part(line) | Element::Last { line, .. }) => {
                    prop_assert!((1..=buffer.len()).contains(&line));
                }
                Ok(Element::Incomplete) | Err(_) => {}
            }
            if head.ends_with('\n') {
                prop_assert_eq!(element(framing, head.as_bytes()), found);
            }
        }
    }
}
