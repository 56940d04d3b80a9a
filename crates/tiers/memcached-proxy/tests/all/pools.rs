//! Several pools: routes by prefix, a warm pool behind a cold one, a shadow that gets copies, and other
//! configurations while requests are under way. All against real servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kendall_memcached_proxy::{
    Mode, Options, Placement, PlanError, Pool, ReloadError, Route, Server, Shadow, WarmUp,
};

use crate::common::{self, Client, MODES, Memcached, Running, options, wait_for, with};

fn pool(name: &str, servers: &[&Memcached]) -> Pool {
    Pool::new(name, servers.iter().map(|server| Server::from(server.address)).collect())
}

fn route(prefix: &str, pool: &str) -> Route {
    Route { prefix: prefix.into(), pool: pool.into() }
}

fn value(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{value}\r\n", value.len())
}

fn holds(server: &Memcached, key: &str) -> bool {
    Client::connect(server.address).values(format!("get {key}\r\n")) != "END\r\n"
}

#[test]
fn keys_go_to_the_pool_of_their_longest_prefix() {
    for mode in MODES {
        for placement in [Placement::Replicate, Placement::Hash] {
            let all: Vec<Memcached> = (0..5).map(|_| Memcached::start()).collect();
            let options =
                with(options(&[&all[0], &all[1]], mode), |pool| pool.placement = placement);
            let mut pools = options.pools.clone();
            pools.push(Pool { placement, ..pool("sessions", &[&all[2], &all[3]]) });
            pools.push(pool("guests", &[&all[4]]));
            let routes = vec![route("s:", "sessions"), route("s:guest:", "guests")];
            let proxy = Running::start(Options { pools, routes, ..options });
            let mut client = Client::connect(proxy.address);
            for key in ["k", "s", "s:1", "s:guest:1", "s:guest", "s:guestx:1"] {
                assert_eq!(client.set(key, key), "STORED");
                let held: Vec<bool> = all.iter().map(|server| holds(server, key)).collect();
                let count = |servers: &[usize]| servers.iter().filter(|n| held[**n]).count();
                let own: &[usize] = match key {
                    "k" | "s" => &[0, 1],
                    "s:guest:1" => &[4],
                    _ => &[2, 3],
                };
                let wanted = if placement == Placement::Hash { 1 } else { own.len() };
                assert_eq!(count(own), wanted, "{key}: {held:?}");
                assert_eq!(count(&[0, 1, 2, 3, 4]), wanted, "{key}: {held:?}");
            }
            // One request for keys of all pools, in the order of the request.
            let keys = ["s:guest:1", "none", "k", "s:1", "s:none", "s", "k"];
            let found = client.values(format!("get {}\r\n", keys.join(" ")));
            let there = keys.iter().filter(|key| !key.ends_with("none"));
            let wanted: String = there.map(|key| value(key, key)).collect();
            assert_eq!(found, format!("{wanted}END\r\n"), "{mode:?} {placement:?}");
            // So do keys that are touched, with their uniques.
            let touched = client.values("gats 100 s:guest:1 k s:1\r\n");
            let shown: Vec<&str> =
                touched.lines().filter(|line| line.starts_with("VALUE")).collect();
            let unique = shown[2].rsplit(' ').next().unwrap();
            assert_eq!(shown.len(), 3);
            // One pool's unique is none of another's.
            assert_eq!(client.line(format!("cas k 0 0 1 {unique}\r\nx\r\n")), "EXISTS");
            assert_eq!(client.line(format!("cas s:1 0 0 1 {unique}\r\nx\r\n")), "STORED");
            // A flush is for all.
            assert_eq!(client.line("flush_all\r\n"), "OK");
            assert!(!all.iter().any(|server| ["k", "s:1"].iter().any(|key| holds(server, key))));
        }
    }
}

#[test]
fn a_pool_without_a_server_harms_no_other() {
    for mode in MODES {
        let (server, mut dies) = (Memcached::start(), Memcached::start());
        let base = options(&[&server], mode);
        let mut pools = base.pools.clone();
        let quick = Duration::from_millis(50);
        pools.push(Pool { probe_every: quick, ..pool("other", &[&dies]) });
        let routes = vec![route("o:", "other")];
        let proxy = Running::start(Options { pools, routes, ..base });
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.set("k", "v"), "STORED");
        dies.kill();
        wait_for("the ejection", || {
            assert!(client.line("touch o:k 0\r\n").starts_with("SERVER_ERROR"));
            proxy.outcome("ejections") == 1
        });
        let refused = "SERVER_ERROR no server is available";
        assert_eq!(client.line("get k o:k\r\n"), refused);
        assert_eq!(client.values("get k\r\n"), value("k", "v") + "END\r\n");
        dies.restart();
        wait_for("the server's return", || proxy.outcome("readmissions") == 1);
        assert_eq!(client.set("o:k", "w"), "STORED");
        let both = client.values("get o:k k\r\n");
        assert_eq!(both, value("o:k", "w") + &value("k", "v") + "END\r\n");
    }
}

fn warmed(cold: &[&Memcached], warm: &[&Memcached], mode: Mode, placement: Placement) -> Options {
    let mut options = with(options(cold, mode), |pool| {
        pool.placement = placement;
        pool.warm_up = Some(WarmUp { from: "old".into(), longest: None });
        pool.timeout = common::DEADLINE;
    });
    options.pools.push(Pool { placement, ..pool("old", warm) });
    options
}

#[test]
fn a_cold_pool_is_filled_from_the_warm_one_as_keys_are_asked_for() {
    for mode in MODES {
        for placement in [Placement::Replicate, Placement::Hash] {
            let cold = [Memcached::start(), Memcached::start()];
            let warm = [Memcached::start(), Memcached::start()];
            let (cold, warm) = ([&cold[0], &cold[1]], [&warm[0], &warm[1]]);
            let old = with(options(&warm, mode), |pool| pool.placement = placement);
            let old = Running::start(old);
            let mut before = Client::connect(old.address);
            for number in 0..60 {
                let key = format!("k{number}");
                let line = format!("set {key} {number} 1000 {}\r\n{key}\r\n", key.len());
                assert_eq!(before.line(line), "STORED");
            }
            let proxy = Running::start(warmed(&cold, &warm, mode, placement));
            let mut client = Client::connect(proxy.address);
            let item = |n: i32| format!("VALUE k{n} {n} {}\r\nk{n}\r\n", format!("k{n}").len());
            // One key, several of which some are nowhere, more than are brought over at once, and by
            // other commands.
            assert_eq!(client.values("get k0\r\n"), item(0) + "END\r\n");
            assert_eq!(client.values("get none\r\n"), "END\r\n");
            let some = client.values("get k1 none k0 k2 k1\r\n");
            assert_eq!(some, item(1) + &item(0) + &item(2) + &item(1) + "END\r\n");
            let keys: String = (3..50).map(|number| format!(" k{number}")).collect();
            let wanted: String = (3..50).map(item).collect();
            assert_eq!(client.values(format!("get{keys}\r\n")), wanted + "END\r\n");
            assert_eq!(client.values("gat 500 k50\r\n"), item(50) + "END\r\n");
            assert!(client.values("gets k51\r\n").starts_with("VALUE k51 51 3 "));
            assert_eq!(client.line("mg k52 f\r\n"), "HD f52");
            assert_eq!(client.line("mg none f\r\n"), "EN");
            client.send("mg k53 v q\r\nmg none v q\r\nmn\r\n");
            assert_eq!(client.read_until(b"MN\r\n"), b"VA 3\r\nk53\r\nMN\r\n");
            // k1 twice, as one request named it twice.
            assert_eq!(proxy.outcome("warmed"), 55);
            // They are there now, for the time that they had left, and the warm pool is not asked again.
            let left = client.line("mg k0 t\r\n");
            let left: u32 = left.strip_prefix("HD t").unwrap().parse().unwrap();
            assert!((1..=1000).contains(&left), "{left}");
            let asked = |name: &str| {
                let snapshot = proxy.instruments.snapshot();
                let mut backends = snapshot.backends.iter();
                backends.find(|b| b.address == name).unwrap().requests
            };
            let warm_names = warm.map(|server| server.address.to_string());
            let before: u64 = warm_names.iter().map(|name| asked(name)).sum();
            assert_eq!(
                client.values("get k0 k7 k53\r\n"),
                item(0) + &item(7) + &item(53) + "END\r\n"
            );
            assert_eq!(warm_names.iter().map(|name| asked(name)).sum::<u64>(), before);
            let here = cold.iter().filter(|server| holds(server, "k0")).count();
            assert_eq!(here, if placement == Placement::Hash { 1 } else { 2 });
        }
    }
}

#[test]
fn what_was_written_or_deleted_never_comes_back_from_the_warm_pool() {
    for mode in MODES {
        let (cold, warm) = (Memcached::start(), Memcached::start());
        let mut before = Client::connect(warm.address);
        for number in 0..6 {
            assert_eq!(before.set(&format!("k{number}"), "old"), "STORED");
        }
        let proxy = Running::start(warmed(&[&cold], &[&warm], mode, Placement::Replicate));
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.line("delete k0\r\n"), "NOT_FOUND");
        assert_eq!(client.values("get k0\r\n"), "END\r\n");
        assert_eq!(client.set("k1", "new"), "STORED");
        assert_eq!(client.line("ms k2 3 q\r\nnew\r\nmn\r\n"), "MN");
        // What the cold pool forgets is not older afterwards than what was last read.
        let mut direct = Client::connect(cold.address);
        assert_eq!(direct.line("delete k1\r\n"), "DELETED");
        assert_eq!(direct.line("delete k2\r\n"), "DELETED");
        assert_eq!(client.values("get k1 k2\r\n"), "END\r\n");
        // In one's own order, pipelined: read, deleted, read again.
        client.send("get k3\r\ndelete k3\r\nget k3\r\nset k4 0 0 3\r\nnew\r\nget k4\r\nmn\r\n");
        let all = String::from_utf8(client.read_until(b"MN\r\n")).unwrap();
        let wanted =
            value("k3", "old") + "END\r\nDELETED\r\nEND\r\nSTORED\r\n" + &value("k4", "new");
        assert_eq!(all, wanted + "END\r\nMN\r\n", "{mode:?}");
        assert_eq!(client.line("flush_all\r\n"), "OK");
        assert_eq!(client.values("get k5\r\n"), "END\r\n");
    }
}

#[test]
fn without_the_warm_pool_a_miss_is_a_miss() {
    for mode in MODES {
        let (cold, mut warm) = (Memcached::start(), Memcached::start());
        let mut options = warmed(&[&cold], &[&warm], mode, Placement::Replicate);
        options.pools[1].probe_every = Duration::from_millis(50);
        let proxy = Running::start(options);
        let mut client = Client::connect(proxy.address);
        warm.kill();
        for _ in 0..10 {
            assert_eq!(client.values("get k\r\n"), "END\r\n");
            assert_eq!(client.values("get k1 k2\r\n"), "END\r\n");
        }
        assert_eq!(client.set("k", "v"), "STORED");
        assert_eq!(client.values("get k none\r\n"), value("k", "v") + "END\r\n");
        warm.restart();
        wait_for("the warm pool's return", || proxy.outcome("readmissions") == 1);
        Client::connect(warm.address).set("w", "x");
        assert_eq!(client.values("get w\r\n"), value("w", "x") + "END\r\n");
    }
}

fn shadowed(main: &[&Memcached], shadow: &[&Memcached], mode: Mode, millionths: u32) -> Options {
    let mut options = with(options(main, mode), |pool| {
        pool.shadow = Some(Shadow { pool: "candidate".into(), millionths });
    });
    let quick = Duration::from_millis(50);
    options.pools.push(Pool { probe_every: quick, ..pool("candidate", shadow) });
    options
}

#[test]
fn a_shadow_gets_copies_of_a_share_of_the_keys() {
    for mode in MODES {
        let (server, shadow) = (Memcached::start(), Memcached::start());
        let proxy = Running::start(shadowed(&[&server], &[&shadow], mode, 500_000));
        let mut client = Client::connect(proxy.address);
        for number in 0..100 {
            assert_eq!(client.set(&format!("k{number}"), "v"), "STORED");
        }
        let keys: String = (0..100).map(|number| format!(" k{number}")).collect();
        let mut seen = 0;
        wait_for("the copies", || {
            let there = Client::connect(shadow.address).values(format!("get{keys}\r\n"));
            seen = there.matches("VALUE").count();
            u64::try_from(seen).unwrap() == proxy.outcome("shadow_copies")
        });
        assert!((25..75).contains(&seen), "{seen} of 100");
        // A read of all is a read of those that are copied.
        assert_eq!(client.values(format!("get{keys}\r\n")).matches("VALUE").count(), 100);
        assert_eq!(client.line("mn\r\n"), "MN");
        let sent = || {
            let snapshot = proxy.instruments.snapshot();
            let name = shadow.address.to_string();
            snapshot.backends.iter().find(|backend| backend.address == name).unwrap().keys
        };
        assert_eq!(sent(), 2 * u64::try_from(seen).unwrap());
        assert_eq!(proxy.outcome("misses"), 0);
        assert_eq!(proxy.outcome("hits"), 100);
        assert_eq!(proxy.limit("shadow"), 0);
    }
}

/// A shadow that answers nothing, or is not there, costs clients nothing but counts.
#[test]
fn nobody_waits_for_a_shadow() {
    for mode in MODES {
        let (server, mut shadow) = (Memcached::start(), Memcached::start());
        let mut options = shadowed(&[&server], &[&shadow], mode, 1_000_000);
        options.pools[1].timeout = common::DEADLINE;
        let proxy = Running::start(options);
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.set("k", "v"), "STORED");
        wait_for("the copy", || holds(&shadow, "k"));
        shadow.signal("STOP");
        // More than it may owe, and more bytes than may wait for it.
        let large = "x".repeat(100_000);
        for number in 0..1100 {
            assert_eq!(client.values("get k\r\n"), value("k", "v") + "END\r\n");
            if number % 10 == 0 {
                assert_eq!(client.set("large", &large), "STORED");
            }
        }
        assert!(proxy.limit("shadow") > 0);
        assert_eq!(proxy.outcome("shadow_failures"), 0, "it is waited for, but by nobody");
        shadow.signal("CONT");
        shadow.kill();
        for _ in 0..100 {
            assert_eq!(client.values("get k\r\n"), value("k", "v") + "END\r\n");
        }
        assert!(proxy.outcome("shadow_failures") > 0);
        for name in ["server_errors", "backend_failures", "backend_timeouts", "ejections"] {
            assert_eq!(proxy.outcome(name), 0, "{name}");
        }
        shadow.restart();
        wait_for("copies to come again", || {
            client.set("again", "v");
            holds(&shadow, "again")
        });
    }
}

/// Clients that read and write their own keys without a pause; whatever is not what they wrote, or no
/// answer at all, is wrong.
struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    clients: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(proxy: &Running) -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let one = |number: usize| {
            let (stop, answers, address) = (Arc::clone(&stop), Arc::clone(&answers), proxy.address);
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let keys = [format!("a{number}"), format!("b{number}")];
                    let text = format!("{number}-{round}");
                    // Pipelined, so that a configuration comes in the middle of a client's order.
                    let sets: String = keys
                        .iter()
                        .map(|key| format!("set {key} 0 0 {}\r\n{text}\r\n", text.len()))
                        .collect();
                    client.send(format!("{sets}get {} {}\r\n", keys[0], keys[1]));
                    assert_eq!(client.read_until(b"\r\n"), b"STORED\r\n");
                    assert_eq!(client.read_until(b"\r\n"), b"STORED\r\n");
                    let got = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
                    // A key whose server changed between may be missing there, or older; another's value
                    // it never is.
                    let own = |line: &str| {
                        line == "END"
                            || keys.iter().any(|key| line.starts_with(&format!("VALUE {key} 0 ")))
                            || line.starts_with(&format!("{number}-"))
                    };
                    assert!(got.lines().all(own), "round {round}: {got:?}");
                    answers.fetch_add(3, Ordering::Relaxed);
                }
            })
        };
        let clients = (0..6).map(one).collect();
        Self { stop, answers, clients }
    }

    fn go_on(&self, answers: u64) {
        let wanted = self.answers.load(Ordering::Relaxed) + answers;
        wait_for("answers", || {
            let fails = self.clients.iter().any(std::thread::JoinHandle::is_finished);
            fails || self.answers.load(Ordering::Relaxed) >= wanted
        });
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
    }
}

#[test]
fn no_request_is_lost_when_other_pools_and_routes_come() {
    for mode in MODES {
        for threads in [1, 2] {
            // The last is never named: what its connections are without a proxy.
            let all: Vec<Memcached> = (0..5).map(|_| Memcached::start()).collect();
            let base = with(options(&[&all[0]], mode), |pool| pool.timeout = common::DEADLINE);
            let base = Options { threads, ..base };
            let proxy = Running::start(base.clone());
            let load = Load::start(&proxy);
            load.go_on(100);
            for round in 0..12 {
                let mut next = with(base.clone(), |main| {
                    if round % 2 == 0 {
                        main.servers = vec![Server::from(all[1].address)];
                    }
                    if round % 3 == 0 {
                        main.placement = Placement::Hash;
                        main.servers.push(Server::from(all[2].address));
                    }
                });
                if round % 4 > 1 {
                    let timeout = common::DEADLINE;
                    next.pools.push(Pool { timeout, ..pool("b", &[&all[3]]) });
                    next.routes.push(route("b", "b"));
                }
                next.queue_length = 1000 + round;
                proxy.reloader.reload(next).unwrap();
                load.go_on(60);
            }
            // At last as it was: connections to servers that are no longer named are closed.
            proxy.reloader.reload(base).unwrap();
            load.go_on(60);
            load.end();
            assert_eq!(proxy.outcome("reloads"), 13);
            let mut client = Client::connect(proxy.address);
            for key in ["a", "b:c"] {
                assert_eq!(client.set(key, "whole"), "STORED");
                assert_eq!(
                    client.values(format!("get {key}\r\n")),
                    value(key, "whole") + "END\r\n"
                );
            }
            for name in ["server_errors", "backend_failures", "no_backend", "client_errors"] {
                assert_eq!(proxy.outcome(name), 0, "{mode:?}: {name}");
            }
            let connections = |server: &Memcached| {
                let mut direct = Client::connect(server.address);
                let stats = direct.values("stats\r\n");
                let line = stats.lines().find(|l| l.starts_with("STAT curr_connections ")).unwrap();
                line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
            };
            for server in [2, 3] {
                wait_for("connections to close", || {
                    connections(&all[server]) == connections(&all[4])
                });
            }
        }
    }
}

#[test]
fn what_did_not_change_keeps_its_connections_and_its_uniques() {
    for mode in MODES {
        let (server, other) = (Memcached::start(), Memcached::start());
        let base = options(&[&server], mode);
        let proxy = Running::start(base.clone());
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.set("k", "v"), "STORED");
        assert_eq!(client.set("o:k", "v"), "STORED");
        let unique =
            |values: String| values.lines().next().unwrap().split(' ').nth(4).unwrap().to_owned();
        let mut direct = Client::connect(server.address);
        let shown = unique(client.values("gets k\r\n"));
        assert_eq!(shown, unique(direct.values("gets k\r\n")), "one server's are shown unchanged");
        let moved = unique(client.values("gets o:k\r\n"));
        let opened = |direct: &mut Client| {
            let stats = direct.values("stats\r\n");
            stats.lines().find(|line| line.contains("total_connections")).unwrap().to_owned()
        };
        let before = opened(&mut direct);
        let mut next = base.clone();
        next.pools.push(pool("other", &[&other]));
        next.routes.push(route("o:", "other"));
        proxy.reloader.reload(next).unwrap();
        // The key is on another server now, whose uniques may well be the same numbers.
        for _ in 0..20 {
            assert_eq!(client.set("o:k", "w"), "STORED");
        }
        assert_eq!(client.line(format!("cas o:k 0 0 1 {moved}\r\nx\r\n")), "EXISTS");
        assert_eq!(client.line(format!("cas k 0 0 1 {shown}\r\nx\r\n")), "STORED");
        assert_eq!(opened(&mut direct), before, "the old connections are still used");
    }
}

#[test]
fn what_cannot_be_carried_out_is_refused_and_all_goes_on_as_before() {
    let (server, other) = (Memcached::start(), Memcached::start());
    let base = options(&[&server], Mode::Workers(4));
    let proxy = Running::start(base.clone());
    let mut client = Client::connect(proxy.address);
    assert_eq!(client.set("k", "v"), "STORED");
    let refused = |options: Options| proxy.reloader.reload(options).unwrap_err();
    let fixed = |options| matches!(refused(options), ReloadError::Fixed { .. });
    assert!(fixed(Options { threads: 2, ..base.clone() }));
    assert!(fixed(Options { mode: Mode::Workers(5), ..base.clone() }));
    assert!(fixed(Options { listen_unix: Some("/nowhere".into()), ..base.clone() }));
    let mut cases: Vec<(Options, &str)> = Vec::new();
    let mut case = |says: &'static str, change: &dyn Fn(&mut Options)| {
        let mut options = base.clone();
        options.pools.push(pool("other", &[&other]));
        options.routes.push(route("o:", "other"));
        change(&mut options);
        cases.push((options, says));
    };
    case("there is no pool", &|options| options.pools.clear());
    case("has no server", &|options| options.pools[1].servers.clear());
    case("two pools are called `main`", &|options| options.pools[1].name = "main".into());
    case("which does not exist (there are: main, other)", &|o| o.routes[0].pool = "Other".into());
    case("nothing leads to the pool `other`", &|options| options.routes.clear());
    case("two routes have the prefix `o:`", &|options| options.routes.push(route("o:", "main")));
    case("is not a prefix of keys", &|options| options.routes.push(route("", "main")));
    case("is not a prefix of keys", &|options| options.routes.push(route("a b", "main")));
    case("cannot be its own source of a warm-up", &|options| {
        options.pools[1].warm_up = Some(WarmUp { from: "other".into(), longest: None });
    });
    case("cannot be its own shadow", &|options| {
        options.pools[0].shadow = Some(Shadow { pool: "main".into(), millionths: 1 });
    });
    case("gets no key", &|options| {
        options.pools[0].shadow = Some(Shadow { pool: "other".into(), millionths: 0 });
    });
    for (options, says) in cases {
        let error = refused(options);
        assert!(matches!(error, ReloadError::Plan(_)), "{error:?}");
        assert!(error.to_string().contains(says), "{error} does not say {says}");
    }
    assert_eq!(refused(Options { pools: Vec::new(), ..base }), PlanError::NoPool.into());
    assert_eq!(client.values("get k\r\n"), value("k", "v") + "END\r\n");
    assert_eq!(proxy.outcome("reloads"), 0);
}
