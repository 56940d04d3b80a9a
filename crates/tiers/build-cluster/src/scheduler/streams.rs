//! The service that workers call: one stream a worker.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::board::{Held, Join, LeaseId, Offer};
use super::shared_board::{Said, SharedBoard, StreamId};
use crate::listen::Access;
use crate::work::workers_server::Workers;
use crate::work::{
    Beat, FromScheduler, FromWorker, Hello, LeaseStage, Welcome, finished, from_scheduler,
    from_worker,
};

/// Time for a worker to say who it is.
const HELLO: Duration = Duration::from_secs(10);
/// Most slots of one worker, and most properties that it offers.
const SLOTS: u32 = 10_000;
const OFFERS: usize = 1000;

#[derive(Debug, Clone)]
pub(super) struct WorkerService {
    pub(super) shared_board: Arc<SharedBoard>,
    pub(super) beat_ms: u32,
}

#[tonic::async_trait]
impl Workers for WorkerService {
    type WorkStream = Conversation;

    async fn work(
        &self,
        request: Request<Streaming<FromWorker>>,
    ) -> Result<Response<Conversation>, Status> {
        Access::of(request.extensions()).may_work().map_err(|status| *status)?;
        let mut incoming = request.into_inner();
        let first = tokio::time::timeout(HELLO, incoming.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no hello came"))??;
        let Some(FromWorker { message: Some(from_worker::Message::Hello(hello)) }) = first else {
            return Err(Status::invalid_argument("the first message is to be a hello"));
        };
        if hello.slots == 0 || hello.slots > SLOTS || hello.offers.len() > OFFERS {
            let words = format!("a worker has 1 to {SLOTS} slots and {OFFERS} properties at most");
            return Err(Status::invalid_argument(words));
        }
        let (stream, outgoing) = self.shared_board.join(join(hello));
        let welcome = Welcome { beat_ms: self.beat_ms };
        let welcome = FromScheduler { message: Some(from_scheduler::Message::Welcome(welcome)) };
        Ok(Response::new(Conversation {
            shared_board: Arc::clone(&self.shared_board),
            stream,
            incoming,
            outgoing,
            welcome: Some(welcome),
            heard_out: false,
            left: false,
        }))
    }
}

fn join(hello: Hello) -> Join {
    let offers = hello.offers.into_iter().map(|offer| (offer.name, offer.value));
    let held = hello.held.into_iter().map(|held| Held {
        lease: LeaseId(held.lease),
        key: held.key.into(),
        merge: held.merge,
    });
    Join {
        name: hello.name.into(),
        uid: hello.uid.into(),
        slots: usize::try_from(hello.slots).unwrap_or(usize::MAX),
        offer: Offer::new(offers),
        held: held.collect(),
        draining: hello.draining,
    }
}

/// Both directions of a worker's stream: its messages are read whenever the connection asks for
/// the next message to it.
#[derive(Debug)]
pub(super) struct Conversation {
    shared_board: Arc<SharedBoard>,
    stream: StreamId,
    incoming: Streaming<FromWorker>,
    outgoing: mpsc::Receiver<Said>,
    welcome: Option<FromScheduler>,
    /// Nothing more is taken from the worker here.
    heard_out: bool,
    /// The worker ended the stream.
    left: bool,
}

impl Conversation {
    /// False when this is not the worker's stream any more.
    fn hear(&mut self, message: FromWorker) -> bool {
        let stream = self.stream;
        match message.message {
            Some(from_worker::Message::Beat(Beat { progress })) => {
                let stages: Vec<(LeaseId, &'static str)> = progress
                    .iter()
                    .map(|one| (LeaseId(one.lease), stage_name(one.stage())))
                    .collect();
                self.shared_board.progress(stream, &stages)
            }
            Some(from_worker::Message::Finished(finished)) => {
                let lease = LeaseId(finished.lease);
                match finished.outcome {
                    Some(finished::Outcome::Answer(response)) => {
                        self.shared_board.finish(stream, lease, response)
                    }
                    Some(finished::Outcome::Failed(why)) => {
                        self.shared_board.give_back(stream, lease, &why)
                    }
                    None => self.shared_board.give_back(stream, lease, "the worker gave no reason"),
                }
            }
            Some(from_worker::Message::Drain(_)) => self.shared_board.drain(stream),
            Some(from_worker::Message::Leave(_)) => {
                self.left = true;
                self.shared_board.leave(stream)
            }
            Some(from_worker::Message::Hello(_)) | None => true,
        }
    }
}

fn stage_name(stage: LeaseStage) -> &'static str {
    match stage {
        LeaseStage::Started => "started",
        LeaseStage::Fetching => "fetching",
        LeaseStage::Running => "running",
        LeaseStage::Uploading => "uploading",
    }
}

impl Stream for Conversation {
    type Item = Result<FromScheduler, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(welcome) = self.welcome.take() {
            return Poll::Ready(Some(Ok(welcome)));
        }
        while !self.heard_out && !self.left {
            match Pin::new(&mut self.incoming).poll_next(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(message))) => self.heard_out = !self.hear(message),
                Poll::Ready(Some(Err(_)) | None) => self.left = true,
            }
        }
        if self.left {
            return Poll::Ready(None);
        }
        // It ends when the worker has another stream, or is none any more; the latter with the reason.
        self.outgoing.poll_recv(context)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.shared_board.broke(self.stream);
    }
}
