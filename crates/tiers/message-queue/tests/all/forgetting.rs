//! Clients that say nothing for long are forgotten, and with them nothing is lost. Time is moved by writing it
//! into their rows.

use kendall_message_queue::{Database, Server};
use kendall_protocols::queue::{
    ChangeQueueRequest, GoodbyeRequest, ListDeadLettersRequest, ReceiveRequest, RedriveRequest,
    SendRequest,
};
use tonic::Code;

use crate::support::{
    self, Client, Folder, Other, connect, create, hello, postgres, runtime, start,
};

const LONG: &str = "30 days 1 minute";
const NOT_SO_LONG: &str = "29 days 23 hours";

struct Setting {
    client: Client,
    other: Other,
    queue: u64,
}

impl Setting {
    async fn new(server: &Server, url: &str) -> Self {
        let mut client = connect(server).await;
        let other = Other::connect(url).await;
        let queue = create(&mut client, "jobs").await;
        Self { client, other, queue }
    }

    /// A message; `receiver` and `request` may be NULL. Not over the middleware, which would have heard the sender.
    fn sending(&self, sender: u64, receiver: &str, delay_ms: u32, request: &str) -> String {
        let queue = self.queue;
        format!(
            "SELECT send_many('{{{sender}}}', '{{{queue}}}', '{{{receiver}}}', '{{x}}', '{{0}}', '{{{delay_ms}}}', \
             NULL, NULL, {request}, {request})"
        )
    }

    async fn send(&self, sender: u64, receiver: u64) {
        self.other.run(&self.sending(sender, &receiver.to_string(), 0, "NULL")).await;
    }

    async fn lease(&self, client: u64) {
        let queue = self.queue;
        let text =
            format!("SELECT take_together('{{{client}}}', {queue}, '{{{client}}}', '{{600000}}')");
        self.other.run(&text).await;
    }

    /// As if nothing had been heard of these clients for so long.
    async fn silent(&self, clients: &[u64], time: &str) {
        let ids: Vec<String> = clients.iter().map(ToString::to_string).collect();
        let update = "UPDATE client SET hello_at = clock_timestamp() - interval";
        self.other.run(&format!("{update} '{time}' WHERE id IN ({})", ids.join(","))).await;
    }

    async fn forget(&self) -> i64 {
        self.other.number("SELECT forget_clients(100)").await
    }

    async fn knows(&self, client: u64) -> bool {
        self.other.number(&format!("SELECT count(*) FROM client WHERE id = {client}")).await == 1
    }
}

/// A PostgreSQL and a middleware over it; the test gets the URL and a setting.
fn with_setting(test: impl AsyncFnOnce(&str, &mut Setting)) {
    let folder = Folder::new();
    let postgres = postgres(&folder);
    let server = start(Database::Url(postgres.url().to_owned()));
    runtime().block_on(async {
        let mut setting = Setting::new(&server, postgres.url()).await;
        test(postgres.url(), &mut setting).await;
    });
    server.stop();
    postgres.stop();
}

#[test]
fn a_client_that_never_says_goodbye_is_forgotten_after_a_month_of_silence() {
    with_setting(async |_, s| {
        let silent = hello(&mut s.client, "silent").await;
        let quiet = hello(&mut s.client, "quiet").await;
        s.silent(&[silent], LONG).await;
        s.silent(&[quiet], NOT_SO_LONG).await;
        assert_eq!(s.forget().await, 1);
        assert!(!s.knows(silent).await);
        assert!(s.knows(quiet).await);
        // A client that returns is told of it, and loses nothing but the number.
        let content = "x".into();
        let request =
            SendRequest { client_id: silent, queue_id: s.queue, content, ..Default::default() };
        let refused = s.client.send(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{refused:?}");
        let again = hello(&mut s.client, "silent").await;
        assert!(again > quiet, "a number is never given twice");
        // Who said goodbye is forgotten after an hour, as ever.
        s.client.goodbye(GoodbyeRequest { client_id: again }).await.unwrap();
        s.silent(&[again], "59 minutes").await;
        assert_eq!(s.forget().await, 0);
        s.silent(&[again], "61 minutes").await;
        assert_eq!(s.forget().await, 1);
    });
}

#[test]
fn a_client_that_anything_names_is_kept_until_nothing_does() {
    with_setting(async |_, s| {
        let mut people = Vec::new();
        for name in ["worker", "receiver", "delayed", "sender", "leaser", "asker"] {
            people.push(hello(&mut s.client, name).await);
        }
        let [worker, receiver, delayed, sender, leaser, asker] = people[..] else { unreachable!() };
        s.other.run(&s.sending(sender, "NULL", 0, "NULL")).await;
        s.lease(leaser).await;
        s.send(worker, receiver).await;
        s.other.run(&s.sending(worker, &delayed.to_string(), 600_000, "NULL")).await;
        let request = "ARRAY[gen_random_uuid()]";
        s.other.run(&s.sending(asker, &worker.to_string(), 0, request)).await;
        s.other.run(&format!("DELETE FROM message WHERE sender_id = {asker}")).await;
        assert_eq!(s.other.number("SELECT count(*) FROM message WHERE leased_by > 0").await, 1);
        s.silent(&people, LONG).await;
        assert_eq!(s.forget().await, 0);
        // One reason after the other goes.
        for (what, gone) in [
            ("DELETE FROM answered", asker),
            ("DELETE FROM message WHERE receiver_id IS NOT NULL AND due_at IS NULL", receiver),
            ("DELETE FROM message WHERE receiver_id IS NOT NULL", delayed),
        ] {
            s.other.run(what).await;
            s.forget().await;
            assert!(!s.knows(gone).await, "{what}");
            assert!(s.knows(sender).await && s.knows(leaser).await, "{what}");
        }
        assert!(!s.knows(worker).await, "nothing of it waits any more");
        s.other.run("DELETE FROM message").await;
        assert_eq!(s.forget().await, 2);
    });
}

#[test]
fn clients_that_must_stay_do_not_keep_the_others() {
    with_setting(async |_, s| {
        let worker = hello(&mut s.client, "worker").await;
        let mut people = Vec::new();
        for n in 0..4 {
            let receiver = hello(&mut s.client, &format!("receiver {n}")).await;
            s.send(worker, receiver).await;
            people.push(receiver);
        }
        let last = hello(&mut s.client, "last").await;
        people.push(last);
        s.silent(&people, LONG).await;
        // One at a time, as chance has it: that it never is this one in 200 times has odds of (4/5)^200,
        // or 10^-19.
        for _ in 0..200 {
            s.other.number("SELECT forget_clients(1)").await;
        }
        assert!(!s.knows(last).await);
        assert!(s.knows(people[0]).await);
    });
}

#[test]
fn a_client_that_works_is_heard_without_a_hello() {
    with_setting(async |_, s| {
        let (busy, idle) = (hello(&mut s.client, "busy").await, hello(&mut s.client, "idle").await);
        s.silent(&[busy, idle], LONG).await;
        // It finds nothing, and has been heard.
        let request = ReceiveRequest { client_id: busy, queue_id: s.queue, ..Default::default() };
        assert!(s.client.receive(request).await.unwrap().into_inner().message.is_none());
        let heard = format!(
            "SELECT count(*) FROM client WHERE id = {busy} AND hello_at > now() - interval '1 hour'"
        );
        s.other.until(&heard, 1).await;
        assert_eq!(s.forget().await, 1);
        assert!(s.knows(busy).await && !s.knows(idle).await);
    });
}

#[test]
fn no_message_is_stored_for_a_client_that_is_forgotten() {
    with_setting(async |url, s| {
        let (worker, silent) =
            (hello(&mut s.client, "worker").await, hello(&mut s.client, "silent").await);
        s.silent(&[silent], LONG).await;
        // A message to it is under way: it stays, and gets it.
        let program = Other::connect(url).await;
        program.run("BEGIN").await;
        program.run(&s.sending(worker, &silent.to_string(), 0, "NULL")).await;
        assert_eq!(s.forget().await, 0, "its row is held");
        program.run("COMMIT").await;
        assert_eq!(s.forget().await, 0, "the message is there");
        s.other.run("DELETE FROM message").await;
        // It is being forgotten: who sends to it waits for that, and is refused.
        program.run("BEGIN").await;
        assert_eq!(program.number("SELECT forget_clients(100)").await, 1);
        let mut client = s.client.clone();
        let request = SendRequest {
            client_id: worker,
            queue_id: s.queue,
            receiver_id: silent,
            content: "x".into(),
            ..Default::default()
        };
        let sending = async { client.send(request).await };
        let committing = async {
            s.other.until(support::WAITING_FOR_A_LOCK, 1).await;
            program.run("COMMIT").await;
        };
        let (sent, ()) = tokio::join!(sending, committing);
        assert_eq!(sent.unwrap_err().code(), Code::NotFound);
        assert_eq!(s.other.number("SELECT count(*) FROM message").await, 0);
    });
}

#[test]
fn a_dead_letter_of_a_forgotten_client_stays_where_it_is() {
    with_setting(async |_, s| {
        let (worker, gone) =
            (hello(&mut s.client, "worker").await, hello(&mut s.client, "gone").await);
        let letters = create(&mut s.client, "letters").await;
        let change = ChangeQueueRequest {
            queue_id: s.queue,
            max_deliveries: Some(1),
            dead_letter_queue_id: Some(letters),
            ..Default::default()
        };
        s.client.change_queue(change).await.unwrap();
        s.send(worker, gone).await;
        s.lease(gone).await;
        let returned = "SELECT return_message(leased_by, id, lease_id, 0, '')::bigint FROM message";
        assert_eq!(s.other.number(returned).await, 0);
        s.silent(&[gone], LONG).await;
        assert_eq!(s.forget().await, 1);
        let redrive = RedriveRequest { queue_id: letters, ..Default::default() };
        assert_eq!(s.client.redrive(redrive).await.unwrap().into_inner().moved, 0);
        let list = ListDeadLettersRequest { queue_id: letters, ..Default::default() };
        let there = s.client.list_dead_letters(list).await.unwrap().into_inner().messages;
        assert_eq!(there.len(), 1, "anyone may take it there");
    });
}
