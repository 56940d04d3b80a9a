//! `kendall load postgres` against a real server, and against servers that are hostile.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kendall_loadgen::postgres::{self, PostgresLoadError, PostgresPlan, Script, given};
use kendall_loadgen::tls::Tls;
use kendall_message_queue::{PrivateOptions, PrivatePostgres, TcpAccess};
use kendall_protocols::load_result::LoadResult;
use kendall_testing::{certificate, free_address, wait_until};
use serde_json::Value;

use crate::hostile::{End, Hostile, plan, relay};
use crate::support::{kendall, printed};

const PASSWORD: &str = "secret";

/// A server with an address, its role and database, and the folder of both.
struct Server {
    address: SocketAddr,
    role: String,
    postgres: PrivatePostgres,
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let address = free_address();
        let tcp = Some(TcpAccess { address, password: PASSWORD.to_owned() });
        let options = PrivateOptions { tcp, ..PrivateOptions::default() };
        let postgres = PrivatePostgres::start_with(&folder.path().join("data"), &options)
            .expect("PostgreSQL's server programs are needed; `make packages-test` installs them");
        let role = postgres.url().split(' ').find_map(|word| word.strip_prefix("user=")).unwrap();
        Self { address, role: role.to_owned(), postgres, folder }
    }

    /// What a statement prints, without a head.
    fn psql(&self, sql: &str) -> String {
        let output = Command::new("psql")
            .args(["-h", &self.address.ip().to_string(), "-p", &self.address.port().to_string()])
            .args(["-U", &self.role, "-d", &self.role, "-X", "-A", "-t", "-q", "-c", sql])
            .env("PGPASSWORD", PASSWORD)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn load(&self, password: &str, arguments: &[&str]) -> Output {
        kendall()
            .args(["load", "postgres", &self.address.to_string(), "--user", &self.role, "--quiet"])
            .args(["--think-time", "1ms"])
            .args(arguments)
            .env("PGPASSWORD", password)
            .output()
            .unwrap()
    }

    /// The JSON of a load, and its exit code.
    fn result(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let output = self.load(PASSWORD, &[arguments, &["--format", "json"]].concat());
        let json = serde_json::from_slice(&output.stdout);
        (json.unwrap_or_else(|_| panic!("{}", said(&output))), output.status.code())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Has the server take these rules of access, and settings beside its own, while it runs.
    fn configure(&self, rules: &str, settings: &str) {
        let data = self.folder.path().join("data/data");
        let owner = std::fs::metadata(&data).unwrap();
        for name in ["server.pem", "server.key", "client.pem"] {
            std::fs::copy(self.folder.path().join(name), data.join(name)).unwrap();
            let (user, group) = (Some(owner.uid()), Some(owner.gid()));
            std::os::unix::fs::chown(data.join(name), user, group).unwrap();
            std::fs::set_permissions(data.join(name), PermissionsExt::from_mode(0o600)).unwrap();
        }
        std::fs::write(data.join("pg_hba.conf"), rules).unwrap();
        std::fs::write(data.join("postgresql.auto.conf"), settings).unwrap();
        let file = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
        let pid = rustix::process::Pid::from_raw(file.lines().next().unwrap().parse().unwrap());
        rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::HUP).unwrap();
    }

    fn stop(self) {
        self.postgres.stop();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn transactions_do_in_the_database_what_they_say() {
    let server = Server::start();
    server.psql("CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0)");
    server.psql(
        "CREATE TABLE history (id bigint PRIMARY KEY, account int, note text, at timestamptz)",
    );
    server.psql("INSERT INTO accounts SELECT generate_series(1, 100)");
    let transfer = server.write(
        "transfer.sql",
        "\\set account random_zipfian(1, 10 * :scale, 1.2)\n\\set delta random(3, 3)\nBEGIN;\n\
         UPDATE accounts SET balance = balance + :delta WHERE id = :account;\n\
         INSERT INTO history VALUES (:id, :account, :note, now());\n\\sleep 100 us\nEND;\n",
    );
    let notes = server.write("notes.txt", "it's\nplain\n");
    let vary = format!("note=file:{notes}");
    let scale = ["--define", "scale=10", "--vary", "id=sequential:1..1000", "--vary", &vary];
    let arguments = [&["--script", &transfer, "-n", "60", "-c", "4"][..], &scale[..]].concat();
    let (json, code) = server.result(&arguments);
    let operation = &json["operations"]["transfer.sql"];
    assert_eq!((code, &operation["completed"]), (Some(0), &Value::from(60)), "{json:#}");
    assert_eq!(server.psql("SELECT sum(balance), count(DISTINCT id) FROM accounts"), "180|100");
    assert_eq!(server.psql("SELECT count(*), min(id), max(id) FROM history"), "60|1|60");
    let notes = server.psql("SELECT string_agg(DISTINCT note, ',' ORDER BY note) FROM history");
    assert_eq!(notes, "it's,plain");
    // Zipf of exponent 1.2 over 100: the first has 1/Σk^−1.2 = 28 %; 60 · 0.28 = 17 ± 4 · 3.5.
    let first: u64 = server.psql("SELECT count(*) FROM history WHERE account = 1").parse().unwrap();
    assert!((3..=31).contains(&first), "{first}");

    // Two scripts by weight, and rows that come back.
    let read = server.write("read.sql", "SELECT balance FROM accounts WHERE id = :id;\n");
    let read = format!("{read}@3");
    let both = ["--script", &read, "--sql", "SELECT :id::int + 1", "-n", "80", "-c", "2"];
    let (json, code) = server.result(&[&both[..], &["--vary", "id=uniform:1..100"]].concat());
    let of = |name: &str| json["operations"][name]["completed"].as_u64().unwrap();
    assert_eq!((code, of("read.sql") + of("sql")), (Some(0), 80));
    // 80 · 3/4 = 60 ± 4 · 3.9.
    assert!(of("read.sql").abs_diff(60) < 16, "{json:#}");
    assert!(json["operations"]["read.sql"]["bytes_in"].as_u64().unwrap() >= 8 * of("read.sql"));

    let output = kendall()
        .args(["init", "--attach", &server.address.to_string(), "-o", "database.toml"])
        .envs([("PGUSER", server.role.as_str()), ("PGPASSWORD", PASSWORD)])
        .current_dir(server.folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let study = std::fs::read_to_string(server.folder.path().join("database.toml")).unwrap();
    assert!(study.contains("protocol = \"postgres\""), "{study}");
    server.stop();
}

#[test]
fn errors_have_their_kinds_and_the_connection_goes_on() {
    let server = Server::start();
    server.psql("CREATE TABLE seen (id int PRIMARY KEY)");
    // Each second number is there already, and its transaction is rolled back.
    let script = server.write("seen.sql", "BEGIN;\nINSERT INTO seen VALUES (:id / 2);\nEND;\n");
    let ids = ["--script", &script, "--vary", "id=sequential:2..41", "-n", "40", "-c", "1"];
    let (json, code) = server.result(&ids);
    let operation = &json["operations"]["seen.sql"];
    let counts = (&operation["completed"], &operation["errors"]["constraint_violation"]);
    assert_eq!((code, counts), (Some(0), (&Value::from(20), &Value::from(20))), "{json:#}");
    assert!(json["caveats"].to_string().contains("SQLSTATE 23505"), "{json:#}");
    assert_eq!(json["reconnects"], 0);
    assert_eq!(server.psql("SELECT count(*) FROM seen"), "20");
    for (sql, kind) in [
        ("SELECT 1 / (:client_id::int - :client_id::int)", "client_error"),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "unavailable"),
        ("SELECT pg_sleep(100)", "timed_out"),
        ("BEGIN; SELECT generate_series(1, 2) AS x \\gset", "client_error"),
    ] {
        let (json, code) = server.result(&["--sql", sql, "-n", "2", "-c", "1", "--timeout", "2s"]);
        let errors = &json["operations"]["sql"]["errors"];
        assert_eq!((code, &errors[kind]), (Some(5), &Value::from(2)), "{sql}: {json:#}");
    }
    let drop = ["--sql", "DROP TABLE IF EXISTS nowhere", "-n", "2", "-c", "1"];
    let output = server.load(PASSWORD, &drop);
    let notices = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !notices.contains("NOTICE"), "{notices}");
    let missing = server.write("missing.sql", "SELECT 1;\nSELECT * FROM nowhere;\n");
    for (password, arguments, code, why) in [
        ("wrong", &["--sql", "SELECT 1"][..], 3, "password authentication failed"),
        (PASSWORD, &["--script", &missing], 3, "missing.sql, line 2: "),
        (PASSWORD, &["--sql", "SELECT 1", "--tls"], 3, "does not support TLS"),
        (PASSWORD, &["--sql", "SELECT 1", "--database", "other"], 3, "\"other\""),
        (PASSWORD, &["--sql", "SELECT :x"], 2, "`:x` is set nowhere"),
        (PASSWORD, &["--sql", "\\set a 1 / 0\nSELECT :a"], 2, "divides by zero"),
        (PASSWORD, &["--sql", "SELECT 1 \\aset"], 2, "`\\aset` is not supported"),
        (PASSWORD, &["--sql", "SELECT 1 AS x \\gset\nSELECT :y"], 3, "`:y` is no column"),
        (PASSWORD, &["--sql", "SELECT now() AS x \\gset\nSELECT :x"], 3, "x::text"),
        (PASSWORD, &["--script", "x.sql@none"], 2, "is not a weight"),
        (PASSWORD, &[], 2, "--script"),
    ] {
        let output = server.load(password, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(why), "{arguments:?}: {}", said(&output));
    }
    server.stop();
}

/// pgbench itself and the load store the same numbers by the same script; pgbench writes 15 digits of them.
#[test]
fn a_script_of_pgbench_does_here_what_it_does_there() {
    let server = Server::start();
    server.psql("CREATE TABLE numbers (name text, number numeric)");
    let expressions = [
        "hash(1234)",
        "hash_murmur2(0 - 7, 99)",
        "hash_fnv1a(1234)",
        "hash_fnv1a(0, 1)",
        "abs(hash(:client_id)) % (1000 * :scale)",
        "int(2.5) + int(0 - 3.5) + int(7.1)",
        "mod(0 - 7, 3)",
        "sqrt(2) + exp(1) + ln(10) + pi()",
        "pow(2, 10) + power(2, 0.5)",
        "double(5) / 2 + 5 / 2",
        "least(3, 2.5) + greatest(1, 2, 0 - 9)",
        "case when :client_id = 0 and not 2 > 3 or false then 7 % 4 | 4 else 1 end",
        "CASE WHEN 1.5 <> 1.5 THEN 1 WHEN 2 <= 2.0 THEN 1 << 4 # 3 ELSE 5 & 6 END",
    ];
    // What queries answer decides, and is written.
    let decided = "SELECT count(*) AS n, 12.50 AS d, 'it''s' AS t, count(*) > 5 AS b, NULL AS z, 1.5::float4 AS f, 2::int2 AS i \
                   FROM numbers \\gset got_\n\\if :got_b\nINSERT INTO numbers VALUES (:got_t, :got_n);\n\
                   \\if :got_n < 5\nINSERT INTO numbers VALUES ('no', 0);\n\\elif :got_d > 12\n\
                   INSERT INTO numbers VALUES ('d' || :got_z, :got_d);\n\\else\nINSERT INTO numbers VALUES ('no', 0);\n\\endif\n\
                   \\else\nINSERT INTO numbers VALUES ('no', 0);\n\\endif\n\
                   SELECT 3 AS three; \\gset\n\\set s :got_f + :got_i + :three\nINSERT INTO numbers VALUES ('s', :s);\n";
    let line = |(number, expression): (usize, &&str)| {
        let set = format!("\\set n \\\n  {expression}\nINSERT INTO numbers");
        format!("{set} VALUES ('{number:02}', :n);\n")
    };
    let text = expressions.iter().enumerate().map(line).collect::<String>();
    let script =
        server.write("numbers.sql", &format!("BEGIN;\n{text}{decided}\\sleep 1 us\nEND;\n"));
    let output = Command::new("pgbench")
        .args(["-h", &server.address.ip().to_string(), "-p", &server.address.port().to_string()])
        .args(["-U", &server.role, "-n", "-t", "1", "-D", "default_seed=5432", "-f", &script])
        .args(["-M", "prepared"])
        .arg(&server.role)
        .env("PGPASSWORD", PASSWORD)
        .output()
        .expect("pgbench: install it with `make packages-test`");
    assert!(output.status.success(), "{}", said(&output));
    let numbers = || server.psql("SELECT name, round(number, 9) FROM numbers ORDER BY name");
    let theirs = numbers();
    assert_eq!(theirs.lines().count(), expressions.len() + 3, "{theirs}");
    server.psql("TRUNCATE numbers");
    let ours = ["-f", &script, "-n", "1", "-c", "1", "-D", "default_seed=5432"];
    let (json, code) = server.result(&ours);
    assert_eq!((code, &json["completed"]), (Some(0), &Value::from(1)), "{json:#}");
    assert_eq!(numbers(), theirs);
    server.stop();
}

/// A real server that encrypts: right and wrong authorities and names, and the client's own certificate.
#[test]
fn a_server_behind_tls_is_loaded_and_others_refused() {
    let server = Server::start();
    let [authority, own] = ["server", "client"].map(|name| {
        let (certificate, key) = certificate(server.folder.path(), name);
        (certificate.display().to_string(), key.display().to_string())
    });
    let role = &server.role;
    let settings = "ssl = on\nssl_cert_file = 'server.pem'\nssl_key_file = 'server.key'\n\
                    ssl_ca_file = 'client.pem'\n";
    let rule = format!("local all all trust\nhost {role} {role} 127.0.0.0/8 scram-sha-256\n");
    server.configure(&rule, settings);
    wait_until("it encrypts", || server.psql("SHOW ssl") == "on");
    // Fails where the connection of the load is not encrypted.
    let encrypted = "SELECT 1 / ssl::int FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let sql = ["--sql", encrypted, "-n", "20", "-c", "2"];
    let named = ["--tls", "--server-name", "localhost", "--authority", &authority.0];
    for arguments in [&named[..], &["--tls", "--insecure"]] {
        let (json, code) = server.result(&[&sql[..], arguments].concat());
        assert_eq!((code, &json["completed"]), (Some(0), &Value::from(20)), "{json:#}");
    }
    // One connection before the load and one of it; those that follow cannot be encrypted.
    let front = relay(server.address, (2, 8_000), b"SHTTP/1.1 400 Bad Request\r\n\r\n");
    let loaded = kendall()
        .args(["load", "postgres", &front.to_string(), "--user", role, "--format", "json"])
        .args([&sql[..2], &["-c", "1", "-z", "1s", "--tls", "--insecure", "--quiet"]].concat())
        .env("PGPASSWORD", PASSWORD)
        .output()
        .unwrap();
    let errors = &printed(&loaded)["operations"]["sql"]["errors"];
    let known = ["connection_closed", "connection_reset", "tls_failed"];
    let kinds: Vec<&String> = errors.as_object().unwrap().keys().collect();
    assert!(kinds.iter().all(|kind| known.contains(&kind.as_str())), "{errors}");
    assert!(errors["tls_failed"].as_u64().unwrap() > 0, "{errors}");
    let (json, _) = server.result(&sql);
    assert_eq!(json["operations"]["sql"]["errors"]["client_error"], 20, "{json:#}");
    let refused = |arguments: &[&str], part: &str| {
        let output = server.load(PASSWORD, &[&sql[..], arguments].concat());
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(part), "{arguments:?}: {}", said(&output));
    };
    refused(&["--tls", "--server-name", "localhost"], "does not trust");
    refused(&["--tls", "--server-name", "localhost", "--authority", &own.0], "does not trust");
    // The certificate is not for the address, nor for this name.
    refused(&["--tls", "--authority", &authority.0], "does not trust");
    let other = ["--tls", "--server-name", "other.example", "--authority", &authority.0];
    refused(&other, "does not trust");
    let rule = rule.replace("host ", "hostssl ").replace("256\n", "256 clientcert=verify-ca\n");
    server.configure(&rule, settings);
    wait_until("it asks for certificates", || {
        server.load(PASSWORD, &[&sql[..], &named].concat()).status.code() == Some(3)
    });
    refused(&named, "certificate");
    let shown = ["--client-certificate", &own.0, "--client-key", &own.1];
    let (json, code) = server.result(&[&sql[..], &named, &shown].concat());
    assert_eq!((code, &json["completed"]), (Some(0), &Value::from(20)), "{json:#}");
    let wrong = ["--client-certificate", &authority.0, "--client-key", &authority.1];
    refused(&[&named[..], &wrong].concat(), "");
    for arguments in [&["--insecure"][..], &["--authority", &authority.0]] {
        let output = server.load(PASSWORD, &[&sql[..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("needs --tls"), "{}", said(&output));
    }
    server.stop();
}

/// One message: its tag, its length and its body.
fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag][..], &length, body].concat()
}

/// What a server says to a start, to a statement of one whole number that is prepared, and to its execution.
fn answers() -> [Vec<u8>; 3] {
    let ready = message(b'Z', b"I");
    let column = [
        b"\0\x01n\0".as_slice(),
        &[0; 6],
        &23_u32.to_be_bytes(),
        &[0, 4, 255, 255, 255, 255, 0, 0],
    ];
    let row = message(b'D', b"\0\x01\0\0\0\x04\0\0\0\x01");
    [
        [message(b'R', &[0; 4]), ready.clone()].concat(),
        [
            message(b'1', b""),
            message(b't', b"\0\0"),
            message(b'T', &column.concat()),
            ready.clone(),
        ]
        .concat(),
        [message(b'2', b""), row, message(b'C', b"SELECT 1\0"), ready].concat(),
    ]
}

fn run(address: SocketAddr, timeout_ms: u64) -> Result<LoadResult, PostgresLoadError> {
    run_over(address, timeout_ms, None)
}

fn run_over(
    address: SocketAddr,
    timeout_ms: u64,
    tls: Option<(String, Tls)>,
) -> Result<LoadResult, PostgresLoadError> {
    let plan = plan(address, 2, 1, Duration::from_millis(timeout_ms));
    let postgres = PostgresPlan {
        user: "user".to_owned(),
        password: None,
        database: "user".to_owned(),
        tls,
        scripts: vec![Script::parse(("one", 1.0), "SELECT 1", &given(&[], &[])).unwrap()],
        defined: Vec::new(),
        varied: Vec::new(),
    };
    postgres::run(&plan, &postgres, &AtomicBool::new(false), &mut |_| ())
}

/// The kinds of errors of a load of which nothing succeeds; none where it does not begin.
fn kinds(address: SocketAddr, timeout_ms: u64) -> Option<Vec<String>> {
    let result = run(address, timeout_ms).ok()?;
    let operation = &result.operations["one"];
    assert_eq!(operation.completed, 0, "{operation:?}");
    Some(operation.errors.keys().cloned().collect())
}

/// A server that agrees to encrypt, and then does not; and one that does not agree.
#[test]
fn a_server_that_encrypts_wrongly_is_given_up() {
    let endless = |bytes: &[u8]| End::Forever(bytes.repeat(1_024));
    let cases: &[(&[&[u8]], End)] = &[
        (&[b"N"], End::Silence),
        (&[b"X"], End::Silence),
        (&[b""], End::Close),
        (&[b"S"], End::Reset),
        (&[b"S", b"HTTP/1.1 400 Bad Request\r\n\r\n"], End::Silence),
        (&[b"S", b"\x15\x03\x03\0\x02\x02\x28"], End::Silence),
        (&[b"S", b"\x16\x03\x03\x40\0\x02"], endless(b"\0")),
        (&[b"S", b"\x16\x03"], End::Silence),
    ];
    for (answers, end) in cases {
        let server = Hostile::start(answers, usize::MAX, end);
        let tls = Tls { insecure: true, ..Tls::default() };
        let loaded = run_over(server.address, 300, Some(("localhost".to_owned(), tls)));
        let error = loaded.unwrap_err().to_string();
        assert!(error.contains(&server.address.to_string()), "{answers:?}: {error}");
    }
}

#[test]
fn an_answer_that_is_cut_at_any_byte_is_told_or_counted() {
    let [start, prepared, executed] = answers();
    let before = start.len() + prepared.len();
    let all: [&[u8]; 5] = [&start, &prepared, &executed, &executed, &executed];
    let whole = Hostile::start(&all, usize::MAX, &End::Silence);
    assert_eq!(run(whole.address, 10_000).unwrap().operations["one"].completed, 2);
    for bytes in 0..before + executed.len() {
        for end in [End::Close, End::Reset] {
            let server = Hostile::start(&all, bytes, &end);
            let kinds = kinds(server.address, 10_000);
            // The library goes on before the preparation's last message, of six bytes, is there.
            let either = (before - 6..=before).contains(&bytes);
            assert!(either || kinds.is_none() == (bytes < before), "{bytes}: {kinds:?}");
            let known = ["connection_closed", "connection_reset"];
            let fits = |kind: &String| known.contains(&kind.as_str());
            assert!(
                kinds.is_none_or(|kinds| !kinds.is_empty() && kinds.iter().all(fits)),
                "{bytes}"
            );
        }
    }
    for bytes in [0, 3, start.len() + 2, before + 7] {
        let server = Hostile::start(&all, bytes, &End::Silence);
        let kinds = kinds(server.address, 100);
        assert!(kinds.is_none_or(|kinds| kinds == ["timed_out"]), "{bytes}");
    }
}

#[test]
fn hostile_answers_end_a_request_or_the_load() {
    let [start, prepared, executed] = answers();
    let row = message(b'D', b"\0\x01\0\0\0\x04\0\0\0\x01");
    let endless = |bytes: &[u8]| End::Forever(bytes.repeat(4_096));
    // Before the load begins: another protocol, lengths that cannot be, settings without end.
    for (answer, end) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], End::Silence),
        (b"R\0\0\0\x03", End::Silence),
        (b"R\xff\xff\xff\xff", End::Silence),
        (b"R\x7f\xff\xff\xff", endless(b"x")),
        (&message(b'R', &[0; 4]), endless(&message(b'S', b"a\0b\0"))),
        (&message(b'R', &[0, 0, 0, 99]), End::Silence),
        (&message(b'E', b"SFATAL\0C53300\0Mtoo many clients\0\0"), End::Close),
    ] {
        let server = Hostile::start(&[answer], usize::MAX, &end);
        let error = run(server.address, 300).unwrap_err().to_string();
        assert!(error.contains(&server.address.to_string()), "{error}");
    }
    // During the load.
    let cases: &[(&[u8], End, &[&str])] = &[
        (&message(b'2', b""), endless(&row), &["timed_out"]),
        (b"2\0\0\0\x03", End::Silence, &["garbage", "connection_closed"]),
        (b"D\x7f\xff\xff\xff", endless(b"x"), &["timed_out"]),
        (
            &[message(b'2', b""), message(b'D', b"\0\x09\0")].concat(),
            End::Silence,
            &["garbage", "connection_closed", "timed_out"],
        ),
        (
            &[message(b'2', b""), message(b'D', b"\0\x01\0\0\0\x7f1")].concat(),
            End::Silence,
            &["garbage", "connection_closed", "timed_out"],
        ),
        (&message(b'W', &[0; 3]), End::Silence, &["garbage", "connection_closed", "timed_out"]),
        (&executed[..9], endless(b"\0"), &["garbage", "connection_closed"]),
    ];
    for (answer, end, expected) in cases {
        let answers: [&[u8]; 3] = [&start, &prepared, answer];
        let server = Hostile::start(&answers, usize::MAX, end);
        let kinds = kinds(server.address, 300).unwrap();
        let fits = |kind: &String| expected.contains(&kind.as_str());
        assert!(!kinds.is_empty() && kinds.iter().all(fits), "{answer:?}: {kinds:?}");
    }
    let error = message(b'E', b"SERROR\0C40P01\0Mdeadlock detected\0\0");
    let ready = message(b'Z', b"I");
    let refused = [error, ready.clone()].concat();
    let rolled_back = [message(b'C', b"ROLLBACK\0"), ready].concat();
    let all: [&[u8]; 6] = [&start, &prepared, &refused, &rolled_back, &refused, &rolled_back];
    let server = Hostile::start(&all, usize::MAX, &End::Silence);
    assert_eq!(kinds(server.address, 10_000).unwrap(), ["deadlock"]);
}
