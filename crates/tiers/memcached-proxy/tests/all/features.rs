//! What can be chosen beside modes and placement: network threads, sockets in the file system,
//! weights, hash tags, and servers that stand in. All against real servers.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use kendall_memcached_proxy::{Address, Options, Placement, Pool, Server};

use crate::common::{self, Client, MODES, Memcached, Running, free_address, options, with};

fn unique(values: &str) -> String {
    values.lines().next().unwrap().split(' ').nth(4).unwrap().to_owned()
}

#[test]
fn several_threads_serve_as_one() {
    for mode in MODES {
        let mut server = Memcached::start();
        let proxy = Running::start(Options { threads: 3, ..options(&[&server], mode) });
        let mut clients: Vec<Client> = (0..24).map(|_| Client::connect(proxy.address)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.set(&format!("k{number}"), "v"), "STORED");
        }
        for client in &mut clients {
            for number in 0..24 {
                let answer = client.values(format!("get k{number}\r\n"));
                assert_eq!(answer, format!("VALUE k{number} 0 1\r\nv\r\nEND\r\n"));
            }
        }
        let snapshot = proxy.instruments.snapshot();
        assert_eq!(snapshot.connections.current, 24);
        assert_eq!(snapshot.outcomes["hits"], 24 * 24);
        // A unique that one thread showed is known to the others, and after a restart to none.
        server.kill();
        server.restart();
        for client in &mut clients {
            common::wait_for("the server's return", || {
                client.line("version\r\n").starts_with("VERSION")
            });
        }
        assert_eq!(clients[0].set("k", "v"), "STORED");
        for pair in 0..23 {
            let shown = unique(&clients[pair].values("gets k\r\n"));
            let answer = clients[pair + 1].line(format!("cas k 0 0 1 {shown}\r\nw\r\n"));
            assert_eq!(answer, "STORED", "{mode:?}");
        }
    }
}

#[test]
fn clients_and_servers_are_reached_by_sockets_in_the_file_system() {
    for mode in MODES {
        let folder = std::env::temp_dir().join(format!("kendall-unix-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (behind, before) = (folder.join("server.sock"), folder.join("proxy.sock"));
        let mut server = Command::new("memcached")
            .args(["-u", "root", "-t", "1", "-s"])
            .arg(&behind)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        common::wait_for("memcached to answer", || UnixStream::connect(&behind).is_ok());
        // What a proxy that was killed left behind.
        drop(std::os::unix::net::UnixListener::bind(&before).unwrap());
        // A process that another test starts meanwhile has a copy of it until it runs its program.
        common::wait_for("the socket to be left", || UnixStream::connect(&before).is_err());
        let address = Address::Unix(behind.clone());
        let mut proxy = Running::start(Options {
            mode,
            pools: vec![Pool::new("main", vec![Server { address, weight: 1 }])],
            listen_unix: Some(before.clone()),
            ..Options::new("127.0.0.1:0".parse().unwrap(), Vec::new())
        });
        let mut client = UnixStream::connect(&before).unwrap();
        client.write_all(b"set k 0 0 1\r\nv\r\nget k\r\nquit\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
        let mut other = Client::connect(proxy.address);
        assert_eq!(other.values("get k\r\n"), "VALUE k 0 1\r\nv\r\nEND\r\n");
        drop(other);
        proxy.end();
        assert!(!before.exists(), "the socket is left behind");
        server.kill().unwrap();
        server.wait().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

fn three() -> [Memcached; 3] {
    [Memcached::start(), Memcached::start(), Memcached::start()]
}

/// Keys are where nutcracker puts them, whose weights are those of the ketama libraries.
#[test]
fn weighted_keys_are_where_nutcracker_puts_them() {
    let servers = three();
    let weights = [1, 2, 5];
    let listen = free_address();
    let folder = std::env::temp_dir().join(format!("kendall-weights-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = folder.join("nutcracker.yml");
    let listed: String = servers
        .iter()
        .zip(weights)
        .map(|(server, weight)| format!("   - {}:{weight}\n", server.address))
        .collect();
    std::fs::write(
        &config,
        format!(
            "a:\n  listen: {listen}\n  hash: md5\n  distribution: ketama\n  servers:\n{listed}"
        ),
    )
    .unwrap();
    let mut nutcracker = Command::new("nutcracker")
        .args(["-s", &free_address().port().to_string(), "-a", "127.0.0.1", "-c"])
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nutcracker is missing: run `make packages-test`");
    common::wait_for("nutcracker", || std::net::TcpStream::connect(listen).is_ok());
    let keys: Vec<String> = (0..400).map(|number| format!("key-{number}")).collect();
    let mut through = Client::connect(listen);
    for key in &keys {
        assert_eq!(through.set(key, key), "STORED");
    }
    for mode in MODES {
        let server = |(server, weight): (&Memcached, u32)| Server {
            address: Address::Tcp(server.address),
            weight,
        };
        let pool = Pool {
            placement: Placement::Hash,
            ..Pool::new("main", servers.iter().zip(weights).map(server).collect())
        };
        let proxy = Running::start(Options {
            mode,
            pools: vec![pool],
            ..Options::new("127.0.0.1:0".parse().unwrap(), Vec::new())
        });
        let mut client = Client::connect(proxy.address);
        for key in &keys {
            let answer = client.values(format!("get {key}\r\n"));
            assert!(answer.starts_with("VALUE"), "{key} is elsewhere");
        }
        let asked: Vec<u64> =
            proxy.instruments.snapshot().backends.iter().map(|b| b.requests).collect();
        assert!(asked[0] < asked[1] && asked[1] < asked[2], "{asked:?}");
    }
    nutcracker.kill().unwrap();
    nutcracker.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn keys_with_one_tag_are_on_one_server() {
    for mode in MODES {
        let servers = three();
        let all: Vec<&Memcached> = servers.iter().collect();
        let proxy = Running::start(with(options(&all, mode), |pool| {
            pool.placement = Placement::Hash;
            pool.hash_tag = Some(*b"{}");
        }));
        let mut client = Client::connect(proxy.address);
        for number in 0..30 {
            assert_eq!(client.set(&format!("{{user}}:{number}"), "v"), "STORED");
            assert_eq!(client.set(&format!("plain:{number}"), "v"), "STORED");
        }
        let count = |server: &Memcached, prefix: &str| {
            let mut direct = Client::connect(server.address);
            let held = |number: &i32| {
                direct.values(format!("get {prefix}{number}\r\n")).starts_with("VALUE")
            };
            (0..30).filter(held).count()
        };
        let mut tagged: Vec<usize> = servers.iter().map(|s| count(s, "{user}:")).collect();
        tagged.sort_unstable();
        assert_eq!(tagged, [0, 0, 30]);
        assert!(servers.iter().all(|server| count(server, "plain:") > 0));
        let keys: String = (0..30).map(|number| format!(" {{user}}:{number}")).collect();
        let found = client.values(format!("get{keys}\r\n"));
        assert_eq!(found.matches("VALUE").count(), 30);
    }
}

/// What many keys may bring, 64 KiB each until their lengths are known, is more than all memory of answers, and others hold some.
#[test]
fn a_get_of_many_keys_is_answered_beside_other_clients() {
    for mode in MODES {
        let server = Memcached::start();
        let proxy = Running::start(options(&[&server], mode));
        let (mut client, mut other) =
            (Client::connect(proxy.address), Client::connect(proxy.address));
        assert_eq!(other.set("k0", "v"), "STORED");
        assert_eq!(client.set("k7", "v"), "STORED");
        for count in [2_047, 2_048, 5_000, 100_000] {
            let keys: String = (0..count).map(|number| format!(" k{number}")).collect();
            let found = client.values(format!("get{keys}\r\n"));
            assert_eq!(found.matches("VALUE").count(), 2, "{count}");
            assert_eq!(other.values("get k7 k0\r\n").matches("VALUE").count(), 2);
        }
    }
}

#[test]
fn a_server_stands_in_for_one_that_is_ejected_and_only_for_its_keys() {
    for mode in MODES {
        let (mut dies, stays, standby) =
            (Memcached::start(), Memcached::start(), Memcached::start());
        let options = with(options(&[&dies, &stays], mode), |pool| {
            pool.placement = Placement::Hash;
            pool.failover = vec![Server::from(standby.address)];
            pool.timeout = Duration::from_secs(1);
            pool.probe_every = Duration::from_millis(50);
        });
        let proxy = Running::start(options);
        let mut client = Client::connect(proxy.address);
        for number in 0..40 {
            assert_eq!(client.set(&format!("k{number}"), "v"), "STORED");
        }
        let held = |server: &Memcached| -> Vec<usize> {
            let mut direct = Client::connect(server.address);
            let here = |n: &usize| direct.values(format!("get k{n}\r\n")).starts_with("VALUE");
            (0..40).filter(here).collect()
        };
        let (lost, kept) = (held(&dies), held(&stays));
        assert_eq!(lost.len() + kept.len(), 40);
        assert_eq!(held(&standby), [0_usize; 0]);
        dies.kill();
        common::wait_for("the ejection", || {
            client.line(format!("touch k{} 0\r\n", lost[0]));
            proxy.outcome("ejections") == 1
        });
        for number in &lost {
            assert_eq!(client.set(&format!("k{number}"), "w"), "STORED");
        }
        assert_eq!(held(&standby), lost);
        assert_eq!(held(&stays), kept);
        for number in 0..40 {
            assert!(client.values(format!("get k{number}\r\n")).starts_with("VALUE"));
        }
        dies.restart();
        common::wait_for("the server's return", || proxy.outcome("readmissions") == 1);
        for number in &lost {
            assert_eq!(client.set(&format!("k{number}"), "x"), "STORED");
        }
        assert_eq!(held(&dies), lost);
    }
}
