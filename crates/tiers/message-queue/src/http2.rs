//! Serves a client's connection by HTTP/2.
//!
//! With the library `h2` itself on the edge that all tiers share, since a receive must know which stream its answer
//! takes: a client that cancels a call resets the stream, and where that comes after the answer was written, only the
//! stream's number tells whose messages go back to their queue.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::server::SendResponse;
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use hyper::body::{Body as HttpBody, Frame};
use kendall_tier::Clock;
use kendall_tier::serve::{
    ConnectionHooks, Enough, Incoming, Part, Protocol, Room, ServeConnection, Served,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Bytes, Service};

use crate::connection::{Peer, Removed, Watched};
use crate::dispatcher::Dispatcher;

/// Requests that one connection may have open.
const STREAMS: u32 = 1024;
/// Bytes that a client may send before they are read: of a request, and of all of a connection.
const WINDOW: u32 = 1 << 20;
const HEADERS: u32 = 16 << 10;
/// Bytes of one answer that wait to be written.
const UNSENT: usize = 400 << 10;
/// How often a client is asked for a sign of life, and how long its answer may take.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub(crate) struct Http2<S> {
    pub(crate) service: S,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) clock: Clock,
}

impl<S: Clone + Send + Sync + Unpin + 'static> ConnectionHooks for Http2<S> {}

impl<S> ServeConnection for Http2<S>
where
    S: Service<
            Request<Body>,
            Response = Response<Body>,
            Error = Infallible,
            Future = BoxFuture<Response<Body>, Infallible>,
        > + Clone
        + Send
        + Sync
        + Unpin
        + 'static,
{
    async fn drive<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        io: I,
        served: Served,
    ) -> Enough {
        if served.protocol == Protocol::Http1 {
            return Enough::Done;
        }
        let (io, peer) = Watched::new(io, &served.connection, (&self.dispatcher, &self.clock));
        let mut enough = pin!(served.enough());
        let mut builder = h2::server::Builder::new();
        builder
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_concurrent_streams(STREAMS)
            // What comes behind the answer to a request that is not whole is dropped; of others each frame is answered.
            .max_concurrent_reset_streams(STREAMS as usize)
            .max_header_list_size(HEADERS)
            .max_send_buffer_size(UNSENT);
        let begun = tokio::select! {
            begun = builder.handshake::<_, Part>(io) => begun,
            end = &mut enough => return end,
        };
        let Ok(mut connection) = begun else { return Enough::Done };
        let pings = connection.ping_pong().expect("it is taken once");
        let mut gone = pin!(until_silent(pings, peer.clone()));
        let mut requests = JoinSet::new();
        let mut ends = None;
        let mut steps_back = false;
        loop {
            // The first of many answers wakes this task, and a runtime with several threads runs it next: it steps
            // back behind the others, or each would be a write of its own.
            let many = requests.len() > 1;
            let accepts = poll_fn(|context| {
                if std::mem::take(&mut steps_back) {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let accepted = connection.poll_accept(context);
                steps_back = many && accepted.is_pending();
                accepted
            });
            tokio::select! {
                accepted = accepts => {
                    let Some(Ok((request, respond))) = accepted else { break };
                    while requests.try_join_next().is_some() {}
                    let by = (peer.clone(), Room::on(&served.connection, None));
                    requests.spawn(answer(self.service.clone(), request, respond, by));
                }
                end = &mut enough, if ends.is_none() => {
                    ends = Some(end);
                    if end == Enough::Unread {
                        break;
                    }
                    connection.graceful_shutdown();
                }
                () = &mut gone => break,
            }
        }
        // Requests that are left end here: their connection is gone.
        ends.unwrap_or(Enough::Done)
    }
}

/// Returns when the client does not answer a ping. What was written before one that it answered has arrived.
async fn until_silent(mut pings: PingPong, peer: Peer) {
    let mut ticks = tokio::time::interval(PING);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let written = peer.written();
        match tokio::time::timeout(PONG, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => peer.arrived(written),
            _ => return,
        }
    }
}

/// Performs one request, unless the client resets its stream before, and sends the answer.
async fn answer<S>(
    mut service: S,
    request: Request<RecvStream>,
    mut respond: SendResponse<Part>,
    (peer, room): (Peer, Room),
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let stream = respond.stream_id().as_u32();
    let (mut head, body) = request.into_parts();
    head.extensions.insert(peer.clone());
    let body = Incoming::new(Received(body), room.clone());
    let request = Request::from_parts(head, Body::new(body));
    let performed = async {
        room.take(0).await;
        let Ok(()) = poll_fn(|context| service.poll_ready(context)).await;
        let Ok(response) = service.call(request).await;
        response
    };
    let response = tokio::select! {
        biased;
        response = performed => response,
        _ = poll_fn(|context| respond.poll_reset(context)) => return,
    };
    let (mut head, body) = response.into_parts();
    let undelivered =
        head.extensions.remove().map(|Removed(messages)| peer.answers(stream, messages));
    let end = body.is_end_stream();
    let Ok(mut sending) = respond.send_response(Response::from_parts(head, ()), end) else {
        return;
    };
    if (end || send(body, &mut sending, &room).await.is_ok())
        && let Some(undelivered) = undelivered
    {
        undelivered.was_sent();
    }
}

/// Sends the frames of a body as fast as the client takes them.
async fn send(mut body: Body, stream: &mut SendStream<Part>, room: &Room) -> Result<(), h2::Error> {
    loop {
        let next = tokio::select! {
            biased;
            next = poll_fn(|context| Pin::new(&mut body).poll_frame(context)) => next,
            reset = poll_fn(|context| stream.poll_reset(context)) => return Err(reset?.into()),
        };
        let Some(frame) = next else { return stream.send_data(room.part(Bytes::new()), true) };
        let Ok(frame) = frame else {
            stream.send_reset(Reason::INTERNAL_ERROR);
            return Err(Reason::INTERNAL_ERROR.into());
        };
        match frame.into_data() {
            Ok(data) => {
                // It waits for the client from here on.
                let part = room.part(data);
                stream.reserve_capacity(1);
                while stream.capacity() == 0 {
                    match poll_fn(|context| stream.poll_capacity(context)).await {
                        Some(Ok(_)) => {}
                        Some(Err(error)) => return Err(error),
                        None => return Err(Reason::CANCEL.into()),
                    }
                }
                let end = body.is_end_stream();
                stream.send_data(part, end)?;
                if end {
                    return Ok(());
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return stream.send_trailers(trailers);
                }
            }
        }
    }
}

/// A request's body as it comes.
struct Received(RecvStream);

impl HttpBody for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let stream = &mut self.0;
        if let Some(data) = ready!(stream.poll_data(context)) {
            let data = data?;
            stream.flow_control().release_capacity(data.len())?;
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let trailers = ready!(stream.poll_trailers(context))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
