//! A private PostgreSQL: which folders it takes, what it does when it ends, and a start that has to wait.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::time::Duration;

use kendall_message_queue::{
    Database, PrivateOptions, PrivatePostgres, PrivatePostgresError, TcpAccess,
};
use kendall_testing::free_address;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{self, Folder, Other, connect, hello, postgres, runtime};

const PATIENCE: Duration = Duration::from_secs(60);

fn look(path: &Path) -> (u32, u32, u32) {
    let about = std::fs::symlink_metadata(path).unwrap();
    (about.uid(), about.gid(), about.mode())
}

/// A folder of another program is neither taken nor changed.
#[test]
fn a_folder_that_holds_something_else_is_left_as_it_is() {
    let folder = Folder::new();
    let foreign = folder.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::set_permissions(&foreign, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(foreign.join("letter.txt"), "dear").unwrap();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::set_permissions(&empty, std::fs::Permissions::from_mode(0o755)).unwrap();
    let link = folder.path().join("link");
    symlink(&empty, &link).unwrap();
    let mut wrong = vec![foreign, link];
    if rustix::process::getuid().is_root() {
        let theirs = folder.path().join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        chown(&theirs, Some(12_345), Some(12_345)).unwrap();
        wrong.push(theirs);
    }
    for path in wrong {
        let before = (look(&path), look(&empty));
        let error = PrivatePostgres::start(&path).unwrap_err();
        assert!(matches!(error, PrivatePostgresError::NotOurs { .. }), "{error:?}");
        println!("{error}");
        assert_eq!((look(&path), look(&empty)), before, "{}", path.display());
    }
    // An empty one is taken, and taken again.
    for _ in 0..2 {
        PrivatePostgres::start(&empty).unwrap().stop();
    }
    assert_eq!(look(&empty).2 & 0o777, 0o700);
}

/// A start on a folder that is in use is refused, and what works there goes on; of two who begin at the same
/// time one makes the cluster.
#[test]
fn a_folder_has_one_postgresql_at_a_time() {
    let folder = Folder::new();
    let path = folder.path().join("queue");
    let both: Vec<Result<PrivatePostgres, PrivatePostgresError>> = std::thread::scope(|scope| {
        let starts = [0, 1].map(|_| scope.spawn(|| PrivatePostgres::start(&path)));
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let (made, refused): (Vec<_>, Vec<_>) = both.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (1, 1), "{refused:?}");
    let postgres = made.into_iter().next().unwrap().unwrap();
    let pid = postgres.pid();
    let late = PrivatePostgres::start(&path);
    for error in refused.into_iter().chain([late]).map(Result::unwrap_err) {
        println!("{error}");
        assert!(matches!(error, PrivatePostgresError::InUse { .. }), "{error:?}");
    }
    runtime().block_on(async {
        let one = Other::connect_plainly(postgres.url()).await;
        assert_eq!(one.number("SELECT 1::bigint").await, 1);
    });
    assert_eq!(postgres.pid(), pid, "nobody stopped it");
    postgres.stop();
    PrivatePostgres::start(&path).unwrap().stop();
}

/// Where the path is too long for a socket, the sockets are in a folder of a name that cannot be guessed
/// before, and that is gone afterwards.
#[test]
fn sockets_of_a_long_path_are_where_nobody_waits_for_them() {
    let folder = Folder::new();
    let long = folder.path().join("x".repeat(100));
    let places: Vec<String> = (0..2)
        .map(|_| {
            let postgres = PrivatePostgres::start(&long).unwrap();
            let place = postgres.url().split('\'').nth(1).unwrap().to_owned();
            runtime().block_on(async {
                let one = Other::connect_plainly(postgres.url()).await;
                assert_eq!(one.number("SELECT 1::bigint").await, 1);
            });
            postgres.stop();
            place
        })
        .collect();
    assert_ne!(places[0], places[1]);
    assert!(places.iter().all(|place| !Path::new(place).exists()), "{places:?}");
}

/// Ended from outside with a status of success, it is started again like after a crash.
#[test]
fn a_postgresql_that_somebody_stops_is_started_again() {
    let folder = Folder::new();
    let options = PrivateOptions { same_group: true, ..PrivateOptions::default() };
    let postgres = PrivatePostgres::start_with(&folder.path().join("queue"), &options).unwrap();
    let first = postgres.pid();
    kill_process(Pid::from_raw(i32::try_from(first).unwrap()).unwrap(), Signal::INT).unwrap();
    runtime().block_on(async {
        let mut looks = tokio::time::interval(Duration::from_millis(50));
        tokio::time::timeout(PATIENCE, async {
            while postgres.pid() == first {
                looks.tick().await;
            }
            while tokio_postgres::connect(postgres.url(), tokio_postgres::NoTls).await.is_err() {
                looks.tick().await;
            }
        })
        .await
        .expect("it was given up");
    });
    postgres.stop();
}

/// Tells the first who come that PostgreSQL recovers, as it does itself; relays the others.
async fn recovering(listener: TcpListener, to: std::net::SocketAddr, mut times: u32) {
    const FIELDS: &[u8] = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
    let mut tasks = tokio::task::JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        if times > 0 {
            times -= 1;
            drop(near.read(&mut [0; 4096]).await);
            let mut answer = vec![b'E'];
            answer.extend(u32::try_from(FIELDS.len() + 4).unwrap().to_be_bytes());
            answer.extend(FIELDS);
            drop(near.write_all(&answer).await);
            continue;
        }
        tasks.spawn(async move {
            let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
            drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
        });
    }
}

#[test]
fn a_start_waits_while_postgresql_recovers() {
    let folder = Folder::new();
    postgres(&folder).stop();
    let address = free_address();
    let options = PrivateOptions {
        tcp: Some(TcpAccess { address, password: "secret".into() }),
        ..PrivateOptions::default()
    };
    let postgres = PrivatePostgres::start_with(&folder.path().join("queue"), &options).unwrap();
    let runtime = runtime();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let near = listener.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn_on(recovering(listener, address, 3), runtime.handle());
    let url = format!(
        "host={} port={} user=kendall password=secret dbname=kendall sslmode=disable",
        near.ip(),
        near.port()
    );
    let server = support::start(Database::Url(url));
    runtime.block_on(async { assert_eq!(hello(&mut connect(&server).await, "x").await, 1) });
    server.stop();
    drop(tasks);
    postgres.stop();
}
