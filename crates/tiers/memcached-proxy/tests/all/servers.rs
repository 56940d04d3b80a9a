//! What several servers mean: replicated writes, reads in turn, shards, uniques, placement.

use kendall_memcached_proxy::{Mode, Options, Placement};

use crate::common::{self, Client, MODES, Memcached, Running, options, with};

fn three() -> [Memcached; 3] {
    [Memcached::start(), Memcached::start(), Memcached::start()]
}

fn before(servers: &[Memcached; 3], mode: Mode) -> Options {
    let all: Vec<&Memcached> = servers.iter().collect();
    options(&all, mode)
}

#[test]
fn a_write_reaches_all_servers_and_reads_take_turns() {
    for mode in MODES {
        let servers = three();
        let proxy = Running::start(before(&servers, mode));
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.set("k", "value"), "STORED");
        assert_eq!(client.line("incr missing 1\r\n"), "NOT_FOUND");
        assert_eq!(client.line("delete missing\r\n"), "NOT_FOUND");
        assert_eq!(client.line("touch k 100\r\n"), "TOUCHED");
        client.send("set quiet 0 0 1 noreply\r\nq\r\n");
        for server in &servers {
            let mut direct = Client::connect(server.address);
            assert_eq!(direct.values("get k\r\n"), "VALUE k 0 5\r\nvalue\r\nEND\r\n");
        }
        for _ in 0..30 {
            assert_eq!(client.values("get k\r\n"), "VALUE k 0 5\r\nvalue\r\nEND\r\n");
        }
        let snapshot = proxy.instruments.snapshot();
        let requests: Vec<u64> = snapshot.backends.iter().map(|b| b.requests).collect();
        assert_eq!(requests, [15, 15, 15], "5 writes to all, 30 reads in turn");
        assert_eq!(snapshot.outcomes["hits"], 30);
        assert_eq!(client.values("get quiet\r\n"), "VALUE quiet 0 1\r\nq\r\nEND\r\n");
    }
}

#[test]
fn the_first_error_answers_when_servers_differ() {
    for mode in MODES {
        let servers = three();
        let proxy = Running::start(before(&servers, mode));
        let mut client = Client::connect(proxy.address);
        Client::connect(servers[1].address).set("k", "5");
        assert_eq!(client.line("add k 0 0 1\r\n7\r\n"), "NOT_STORED");
        // 7, 5, 7: all succeed and differ.
        assert_eq!(client.line("incr k 1\r\n"), "SERVER_ERROR servers disagree");
        assert_eq!(proxy.outcome("servers_disagree"), 1);
        assert_eq!(client.set("k", "1"), "STORED");
        assert_eq!(client.line("incr k 1\r\n"), "2");
    }
}

#[test]
fn sharded_multigets_come_in_the_order_of_the_keys() {
    for mode in MODES {
        for placement in [Placement::Replicate, Placement::Hash] {
            let servers = three();
            let options = with(before(&servers, mode), |pool| {
                pool.shard_multigets = true;
                pool.placement = placement;
            });
            let proxy = Running::start(options);
            let mut client = Client::connect(proxy.address);
            let keys: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
            for key in keys.iter().step_by(2) {
                assert_eq!(client.set(key, key), "STORED");
            }
            for count in [2, 3, 4, 9, 40] {
                let asked = &keys[..count];
                let found = asked.iter().step_by(2);
                let mut expected: String =
                    found.map(|key| format!("VALUE {key} 0 {}\r\n{key}\r\n", key.len())).collect();
                // A key that is asked for twice comes twice.
                expected.push_str("VALUE key-0 0 5\r\nkey-0\r\nEND\r\n");
                let answer = client.values(format!("get {} key-0\r\n", asked.join(" ")));
                assert_eq!(answer, expected, "{mode:?} {placement:?} {count} keys");
            }
            let snapshot = proxy.instruments.snapshot();
            assert!(snapshot.backends.iter().all(|b| b.keys > 0), "{:?}", snapshot.backends);
        }
    }
}

#[test]
fn keys_are_split_as_evenly_as_can_be() {
    let servers = three();
    let options = with(before(&servers, Mode::Pipelined { connections: 1 }), |pool| {
        pool.shard_multigets = true;
    });
    let proxy = Running::start(options);
    let mut client = Client::connect(proxy.address);
    for _ in 0..3 {
        client.values("get a b c d e f g h\r\n");
    }
    // 3 + 3 + 2 keys, whichever is first in turn: 8 for each after three requests.
    let snapshot = proxy.instruments.snapshot();
    let keys: Vec<u64> = snapshot.backends.iter().map(|backend| backend.keys).collect();
    assert_eq!(keys, [8, 8, 8]);
}

fn unique(values: &str) -> String {
    values.lines().next().unwrap().split(' ').nth(4).unwrap().to_owned()
}

#[test]
fn a_unique_compares_on_the_server_that_gave_it_and_the_others_follow() {
    for mode in MODES {
        for placement in [Placement::Replicate, Placement::Hash] {
            let servers = three();
            // Counters that differ from server to server.
            for (server, writes) in servers.iter().zip([3, 50, 7]) {
                let mut direct = Client::connect(server.address);
                for number in 0..writes {
                    direct.set("noise", &number.to_string());
                }
            }
            let options = with(before(&servers, mode), |pool| pool.placement = placement);
            let proxy = Running::start(options);
            let (mut one, mut two) =
                (Client::connect(proxy.address), Client::connect(proxy.address));
            one.set("k", "first");
            let old = unique(&one.values("gets k\r\n"));
            assert_eq!(old, unique(&two.values("gets k\r\n")));
            assert_eq!(two.line(format!("cas k 0 0 6 {old}\r\nsecond\r\n")), "STORED");
            assert_eq!(one.line(format!("cas k 0 0 5 {old}\r\nthird\r\n")), "EXISTS");
            assert_eq!(one.line(format!("cas none 0 0 1 {old}\r\nx\r\n")), "NOT_FOUND");
            for _ in 0..3 {
                assert_eq!(one.values("get k\r\n"), "VALUE k 0 6\r\nsecond\r\nEND\r\n");
            }
            // The same by meta commands.
            let shown = one.line("mg k c\r\n");
            let token = shown.strip_prefix("HD c").unwrap().to_owned();
            assert_eq!(one.line(format!("ms k 3 C{token}\r\nnew\r\n")), "HD");
            assert_eq!(one.line(format!("ms k 3 C{token}\r\nold\r\n")), "EX");
            assert_eq!(one.line(format!("md k C{token}\r\n")), "EX");
            for _ in 0..3 {
                assert_eq!(two.values("get k\r\n"), "VALUE k 0 3\r\nnew\r\nEND\r\n");
            }
        }
    }
}

#[test]
fn a_unique_from_before_a_restart_never_matches() {
    for mode in MODES {
        let mut server = Memcached::start();
        let proxy = Running::start(options(&[&server], mode));
        let mut client = Client::connect(proxy.address);
        client.set("k", "old");
        let old = unique(&client.values("gets k\r\n"));
        server.kill();
        server.restart();
        // The new server counts from the beginning: the same number, another value.
        let direct = Client::connect(server.address).set("k", "new");
        assert_eq!(direct, "STORED");
        let mut client = Client::connect(proxy.address);
        common::wait_for("the proxy to reach the server again", || {
            client.line("version\r\n").starts_with("VERSION")
        });
        assert_eq!(client.line(format!("cas k 0 0 5 {old}\r\nwrong\r\n")), "EXISTS");
        let now = unique(&client.values("gets k\r\n"));
        assert_eq!(client.line(format!("cas k 0 0 5 {now}\r\nright\r\n")), "STORED");
    }
}

#[test]
fn one_clients_pipelined_requests_are_answered_and_done_in_order() {
    for mode in MODES {
        let servers = three();
        let options = with(before(&servers, mode), |pool| pool.shard_multigets = true);
        let proxy = Running::start(options);
        let mut client = Client::connect(proxy.address);
        let mut stream = String::new();
        let mut expected = String::new();
        for number in 0..500 {
            stream.push_str(&format!("set k 0 0 4 noreply\r\n{number:04}\r\nget k a k\r\n"));
            let value = format!("VALUE k 0 4\r\n{number:04}\r\n");
            expected.push_str(&format!("{value}{value}END\r\n"));
            if number % 7 == 0 {
                stream.push_str("mn\r\nbogus\r\nincr none 1\r\n");
                expected.push_str("MN\r\nERROR\r\nNOT_FOUND\r\n");
            }
        }
        stream.push_str("mg none\r\n");
        expected.push_str("EN\r\n");
        let mut writer = client.stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            std::io::Write::write_all(&mut writer, stream.as_bytes()).unwrap();
        });
        let answer = client.read_until(b"EN\r\n");
        sender.join().unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    }
}

#[test]
fn workers_bound_what_is_in_service_and_the_rest_waits() {
    let server = Memcached::start();
    let options =
        with(options(&[&server], Mode::Workers(2)), |pool| pool.timeout = common::DEADLINE);
    let proxy = Running::start(options);
    let mut clients: Vec<Client> = (0..10).map(|_| Client::connect(proxy.address)).collect();
    // Each has been served once, so all are connected and all connections are open.
    for client in &mut clients {
        assert_eq!(client.line("mg none\r\n"), "EN");
    }
    server.signal("STOP");
    for client in &mut clients {
        client.send("get k\r\n");
    }
    common::wait_for("eight requests to wait", || {
        proxy.instruments.snapshot().queue_length.current == 8
    });
    assert_eq!(proxy.instruments.snapshot().workers_busy.current, 2);
    server.signal("CONT");
    for client in &mut clients {
        assert_eq!(client.read_until(b"END\r\n"), b"END\r\n");
    }
    let snapshot = proxy.instruments.snapshot();
    assert_eq!((snapshot.queue_length.current, snapshot.queue_length.maximum), (0, 8));
    assert_eq!(snapshot.workers_busy.maximum, 2);
}

#[test]
fn values_of_any_size_pass_in_pieces() {
    for mode in MODES {
        let servers = [Memcached::start_with(&["-I", "64m", "-m", "512"]), Memcached::start()];
        let options = Options { value_bytes: 64 << 20, ..options(&[&servers[0]], mode) };
        let proxy = Running::start(options);
        let mut client = Client::connect(proxy.address);
        for size in [0, 1, 1000, 65_530, 65_536, 1 << 20, 20 << 20] {
            let value = "x".repeat(size);
            assert_eq!(client.set("large", &value), "STORED", "{size}");
            let answer = client.values("get large\r\n");
            assert_eq!(answer.len(), format!("VALUE large 0 {size}\r\n\r\nEND\r\n").len() + size);
        }
    }
}
