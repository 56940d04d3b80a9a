//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::future::{Pending, pending, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Timeout;
use tokio::time::error::Elapsed;

use super::incoming::Incoming;
use super::open::{Connection, Part, Room};
use super::tls::{self, First, Protocol, TlsAlone};
use super::{Counted, EdgeLimit, ListenOptions, Serve, ServeConnection, Shared, pause, stopped};

/// Requests that one connection may have open.
const STREAMS: u32 = 1024;
/// Bytes that are read at a time while no further request may begin.
const FEW_BYTES: usize = 1 << 10;
/// Bytes that a stream, and a connection, may send before a handler takes them.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 2 << 20;
/// Largest frame that a client may send.
const FRAME_BYTES: u32 = 64 << 10;
/// Bytes of one answer that are held for a client that does not take them, beside its last part.
const SEND_BYTES: usize = 256 << 10;
/// Streams that are reset in so much time before their client has sent all: fewer than the 50 of which the library
/// drops in that time what still comes. It answers each frame of others, and closes the connection after 1,024.
const RESETS: usize = 40;
const REMEMBERED: Duration = Duration::from_secs(1);
/// A peer that answers no ping for so long is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// A client that closes its side so soon after its request in HTTP/1.1 waits for the answer, as `printf … | nc` does;
/// later, it has given up, as one whose patience is over or whose user asks for something else.
const CLOSES_WITHIN_NS: u64 = 20_000_000;
/// How often connections are checked for being idle.
const LOOK: Duration = Duration::from_secs(5);
/// After a time is over: what came meanwhile is read first, in case this process was suspended.
const SOON: Duration = Duration::from_millis(10);
/// Longest time without a byte taken of answers that wait for the client.
const UNREAD: Duration = Duration::from_secs(60);

/// Serves it, encrypted or not.
pub(super) async fn serve<S: ServeConnection>(
    stream: std::net::TcpStream,
    service: S,
    counted: Counted,
    stop: watch::Receiver<bool>,
) {
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let shared = Arc::clone(&counted.shared);
    let options = &shared.options;
    let late = service.clone();
    let served = async {
        match &shared.acceptor {
            None => {
                let told = in_time(options.patience, tls::first(&stream)).await;
                match told {
                    Ok(Some(First::Clear(protocol))) => {
                        drive(stream, protocol, service, &counted, stop).await
                    }
                    Ok(Some(First::Tls)) => {
                        shared.log(TlsAlone::Client, &stream);
                        tls::decline(stream).await;
                        End::Other
                    }
                    Ok(None) => End::Other,
                    Err(_) => {
                        // With bytes unread the connection would be reset instead of closed.
                        stream.try_read(&mut [0; 64]).unwrap_or_default();
                        End::Late
                    }
                }
            }
            Some(acceptor) => {
                let accepted = acceptor.accept(stream).into_fallible();
                match in_time(options.patience, accepted).await {
                    Ok(Ok(stream)) => {
                        let protocol = tls::negotiated(&stream);
                        drive(stream, protocol, service, &counted, stop).await
                    }
                    Ok(Err((error, stream))) => {
                        let why = error.get_ref().and_then(|why| why.downcast_ref());
                        if why.is_some_and(tls::is_in_the_clear) {
                            shared.log(TlsAlone::Server, &stream);
                            tls::part(stream).await;
                        }
                        End::Other
                    }
                    Err(_) => End::Late,
                }
            }
        }
    };
    tokio::select! {
        served = tokio::time::timeout(options.longest, served) => {
            if let Ok(End::Late) = served {
                late.limit_hit(EdgeLimit::ReadTime);
            }
        }
        () = counted.connection.ended() => {}
    }
}

/// Awaits work for so long. When the time is over, bytes that arrived while this process was suspended are not read yet:
/// the work gets a little more to read them.
///
/// # Errors
/// [`Elapsed`] where it does not end.
pub async fn in_time<T>(time: Duration, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut work = pin!(work);
    match tokio::time::timeout(time, work.as_mut()).await {
        Ok(done) => Ok(done),
        Err(_) => tokio::time::timeout(SOON, work).await,
    }
}

enum End {
    /// Its first request did not come in time.
    Late,
    Other,
}

/// Whether a request names its host as it must.
fn has_one_host<B>(request: &Request<B>) -> bool {
    let hosts = request.headers().get_all(HOST);
    let http_11 = request.version() == Version::HTTP_11;
    let named = request.uri().authority().is_some();
    crate::is_host(http_11, named, hosts.iter().map(HeaderValue::as_bytes))
}

/// Whether a request is one of gRPC, whose refusals have a form of their own.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Speaks the protocol until either side has enough.
async fn drive<S: ServeConnection, I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: I,
    protocol: Protocol,
    service: S,
    counted: &Counted,
    stop: watch::Receiver<bool>,
) -> End {
    let (shared, connection) = (Arc::clone(&counted.shared), Arc::clone(&counted.connection));
    let mut io = Watched::new(io, service.clone(), Arc::clone(&connection), shared.options.idle);
    io.may_close = protocol == Protocol::Http1;
    let end = service.drive(io, Served { protocol, connection, shared, stop }).await;
    let never = counted.connection.begun() == 0;
    let late = end == Enough::Silent || (end == Enough::Idle && never);
    if late { End::Late } else { End::Other }
}

pub struct Served {
    pub protocol: Protocol,
    /// It, among those that are open.
    pub connection: Arc<Connection>,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Served").field(&self.connection).finish()
    }
}

pub(super) async fn drive_http<S: Serve, I>(service: S, io: I, served: Served) -> Enough
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = Arc::clone(&served.connection);
    let late = served.shared.late.subscribe();
    let (rests, left) = mpsc::channel(STREAMS as usize);
    // In HTTP/1.1 the connection ends where a request is left.
    let rests = (served.protocol == Protocol::Http2).then_some(rests);
    let answering = service_fn(move |request: Request<hyper::body::Incoming>| {
        let service = service.clone();
        let room = Room::on(&connection, Some(connection.begin()));
        let mut request =
            request.map(|body| Incoming::new(body, room.clone()).with_rests(rests.clone()));
        request.extensions_mut().insert(connection.client.clone());
        request.extensions_mut().insert(room.clone());
        let mut late = late.clone();
        let is_grpc = is_grpc(request.headers());
        async move {
            room.take(0).await;
            let head_only = request.method() == Method::HEAD;
            let answering = async {
                if has_one_host(&request) {
                    service.serve(request).await
                } else {
                    service.refuse_host(request).await
                }
            };
            let response = tokio::select! {
                biased;
                response = answering => response,
                () = stopped(&mut late) => service.refuse_at_stop(is_grpc),
            };
            let response = Answer::of(response, head_only, room).await;
            Ok::<_, Infallible>(response)
        }
    });
    let (io, options) = (TokioIo::new(io), &served.shared.options);
    let enough = served.enough();
    let ended = async {
        match served.protocol {
            Protocol::Http2 => until(enough, http2(options).serve_connection(io, answering)).await,
            Protocol::Http1 => until(enough, http1(options).serve_connection(io, answering)).await,
        }
    };
    tokio::select! {
        enough = ended => enough,
        never = read_rests(left) => match never {},
    }
}

/// Reads what comes of requests that were answered before they were whole, until their streams are reset in turn.
async fn read_rests(mut left: mpsc::Receiver<hyper::body::Incoming>) -> Infallible {
    let resets = Arc::new(Semaphore::new(RESETS));
    let mut reading = JoinSet::new();
    loop {
        tokio::select! {
            Some(body) = left.recv() => drop(reading.spawn(read_rest(body, Arc::clone(&resets)))),
            Some(_) = reading.join_next() => {}
            else => return pending().await,
        }
    }
}

async fn read_rest(mut body: hyper::body::Incoming, resets: Arc<Semaphore>) {
    let whole = async { while let Some(Ok(_)) = body.frame().await {} };
    let turn = tokio::select! {
        () = whole => return,
        turn = resets.acquire_owned() => turn,
    };
    drop(body);
    tokio::time::timeout(REMEMBERED, pending::<()>()).await.unwrap_or_default();
    drop(turn);
}

fn http2(options: &ListenOptions) -> hyper::server::conn::http2::Builder<TokioExecutor> {
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        // A tier passes on what many clients asked for, and gives it up when they leave.
        .max_pending_accept_reset_streams(usize::try_from(STREAMS).unwrap_or(usize::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .max_header_list_size(options.head_bytes)
        .max_send_buf_size(SEND_BYTES)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    builder
}

fn http1(options: &ListenOptions) -> hyper::server::conn::http1::Builder {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // It would end connections that are idle, too.
        .header_read_timeout(None)
        .max_headers(options.headers)
        .max_header_size(usize::try_from(options.head_bytes).unwrap_or(usize::MAX));
    builder
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enough {
    /// The tier stops, or the client had enough.
    Done,
    /// It said nothing for too long.
    Idle,
    /// In HTTP/1.1 it has not asked anything for too long.
    Silent,
    /// The client took nothing of its answers for too long.
    Unread,
}

/// Drives a connection until it ends, or ends it when there is `enough`.
async fn until<C: GracefulConnection<Error = hyper::Error>>(
    enough: impl Future<Output = Enough>,
    connection: C,
) -> Enough {
    let mut connection = pin!(connection);
    let (end, result) = tokio::select! {
        result = connection.as_mut() => (Enough::Done, result),
        end = enough => {
            if end == Enough::Unread || end == Enough::Silent {
                return end;
            }
            connection.as_mut().graceful_shutdown();
            (end, connection.await)
        }
    };
    let late = result.is_err_and(|error| {
        tracing::debug!(%error, "a connection broke");
        error.is_timeout()
    });
    if late { Enough::Idle } else { end }
}

impl Served {
    /// Returns when the tier stops, or when the connection was idle or its answers were not taken for too long.
    pub fn enough(&self) -> impl Future<Output = Enough> + Send + use<> {
        let (connection, mut stop) = (Arc::clone(&self.connection), self.stop.clone());
        let (idle, patience) = (self.shared.options.idle, self.shared.options.patience);
        let is_http1 = self.protocol == Protocol::Http1;
        let first = if is_http1 { patience.min(idle) } else { idle };
        async move {
            let (mut quiet, mut unread) = (Duration::ZERO, Duration::ZERO);
            let counts = || (connection.begun(), connection.taken());
            let mut before = counts();
            let look = LOOK.min(first);
            let after = |so: bool, time: Duration| if so { time + look } else { Duration::ZERO };
            loop {
                if tokio::time::timeout(look, stopped(&mut stop)).await.is_ok() {
                    return Enough::Done;
                }
                let now = counts();
                quiet = after(now.0 == before.0 && !connection.has_requests(), quiet);
                unread = after(now.1 == before.1 && connection.waits(), unread);
                if unread >= UNREAD.min(idle) {
                    return Enough::Unread;
                }
                before = now;
                let never = now.0 == 0;
                if quiet >= if never { first } else { idle } {
                    pause(SOON).await;
                    if counts().0 == now.0 && !connection.has_requests() {
                        return if never && is_http1 { Enough::Silent } else { Enough::Idle };
                    }
                }
            }
        }
    }
}

/// The body of an answer. Of one to HEAD the bytes are taken and not sent, which HTTP/2 leaves to the server.
struct Answer<B> {
    body: B,
    room: Room,
    /// Of a body that is not sent.
    unsent: Option<SizeHint>,
}

impl<B: Body<Data = Bytes> + Unpin> Answer<B> {
    async fn of(response: Response<B>, head_only: bool, room: Room) -> Response<Self> {
        let (head, mut body) = response.into_parts();
        let unsent = head_only.then(|| body.size_hint());
        if head_only {
            while let Some(Ok(_)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
            {
            }
        }
        Response::from_parts(head, Self { body, room, unsent })
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = Part;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Part>, B::Error>>> {
        if self.unsent.is_some() {
            return Poll::Ready(None);
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map_ok(|frame| frame.map_data(|bytes| self.room.part(bytes)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.unsent {
            None => self.body.is_end_stream(),
            // Otherwise the library would announce no bytes.
            Some(unsent) => unsent.exact() == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.unsent.unwrap_or_else(|| self.body.size_hint())
    }
}

/// Ends a call that has made no progress for too long.
struct Stall {
    longest: Duration,
    since: Option<Pin<Box<Timeout<Pending<()>>>>>,
}

impl Stall {
    fn check<T>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.since = None;
            return done;
        }
        let timer = || Box::pin(tokio::time::timeout(self.longest, pending()));
        let since = self.since.get_or_insert_with(timer);
        since.as_mut().poll(context).map(|_| {
            let words = format!("the client took no byte for {:?}", self.longest);
            Err(io::Error::new(io::ErrorKind::TimedOut, words))
        })
    }
}

/// A stream that tells its service what passes, is not read where no further request may begin, and breaks where the
/// client takes nothing.
struct Watched<I, S> {
    io: I,
    service: S,
    connection: Arc<Connection>,
    /// Its turn among those that are not read.
    turn: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
    /// Requests that were read begin before more is read.
    yields: bool,
    /// Whether the client may close its side before it has its answer, and until when.
    may_close: bool,
    closes_until_ns: u64,
    /// Who reads on when the answer is taken, where it has.
    reader: Option<Waker>,
    // Two: a plain stream is always flushed, also while it takes no further byte.
    writes: Stall,
    flushes: Stall,
}

impl<I, S: ServeConnection> Watched<I, S> {
    fn new(io: I, service: S, connection: Arc<Connection>, longest: Duration) -> Self {
        let stall = || Stall { longest, since: None };
        Self {
            io,
            service,
            connection,
            turn: None,
            yields: false,
            may_close: false,
            closes_until_ns: 0,
            reader: None,
            writes: stall(),
            flushes: stall(),
        }
    }

    /// Bytes that may be read.
    fn poll_most(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let connection = &self.connection;
        // A turn is polled whether or not it is waited for: the first of those who wait makes room.
        while self.turn.is_some() || !connection.may_begin(1) {
            let turn =
                self.turn.get_or_insert_with(|| Box::pin(Arc::clone(connection).next_turn()));
            match turn.as_mut().poll(context) {
                Poll::Ready(is_its_turn) => {
                    self.turn = None;
                    if is_its_turn {
                        break;
                    }
                }
                Poll::Pending if connection.is_needed() => return Poll::Ready(FEW_BYTES),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(usize::MAX)
    }

    /// Whether a client that has closed its side still waits for an answer.
    fn waits_for_answer(&self) -> bool {
        self.connection.has_requests()
            && !self.connection.awaits_body()
            && self.connection.now_ns() < self.closes_until_ns
    }

    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.service.sent(bytes);
        }
        self.writes.check(context, written)
    }
}

impl<I: AsyncRead + Unpin, S: ServeConnection> AsyncRead for Watched<I, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = ready!(self.poll_most(context));
        let before = buffer.filled().len();
        let read = if most < buffer.remaining() {
            let mut few = ReadBuf::new(buffer.initialize_unfilled_to(most));
            let read = Pin::new(&mut self.io).poll_read(context, &mut few);
            let bytes = few.filled().len();
            buffer.advance(bytes);
            read
        } else {
            Pin::new(&mut self.io).poll_read(context, buffer)
        };
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            self.service.received(bytes);
            self.yields = !self.connection.may_begin(STREAMS as usize);
            self.closes_until_ns = if self.may_close { u64::MAX } else { 0 };
        } else if read.is_pending() {
            if self.closes_until_ns == u64::MAX {
                self.closes_until_ns = self.connection.now_ns() + CLOSES_WITHIN_NS;
            }
        } else if matches!(read, Poll::Ready(Ok(()))) && self.waits_for_answer() {
            (self.closes_until_ns, self.reader) = (u64::MAX, Some(context.waker().clone()));
            return Poll::Pending;
        }
        read
    }
}

impl<I: AsyncWrite + Unpin, S: ServeConnection> AsyncWrite for Watched<I, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.wrote(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, parts);
        self.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.service.flushed();
            if !self.connection.has_requests()
                && let Some(reader) = self.reader.take()
            {
                reader.wake();
            }
        }
        self.flushes.check(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::Empty;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::serve::{ConnectionHooks, Listener};

    /// Answers when it may.
    #[derive(Debug, Clone)]
    struct Gate {
        open: Arc<Semaphore>,
        waiting: Arc<AtomicUsize>,
        answered: Arc<AtomicUsize>,
    }

    impl Default for Gate {
        fn default() -> Self {
            let open = Arc::new(Semaphore::new(0));
            Self { open, waiting: Arc::default(), answered: Arc::default() }
        }
    }

    impl ConnectionHooks for Gate {}

    impl Serve for Gate {
        type Body = Empty<Bytes>;

        async fn serve(&self, _: Request<Incoming>) -> Response<Self::Body> {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            drop(self.open.acquire().await);
            self.answered.fetch_add(1, Ordering::SeqCst);
            Response::default()
        }

        fn refuse_at_stop(&self, _: bool) -> Response<Self::Body> {
            let mut response = Response::default();
            *response.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
            response
        }

        async fn refuse_host(&self, _: Request<Incoming>) -> Response<Self::Body> {
            unreachable!("they name their host")
        }
    }

    /// Kinds of frames, and flags of the last frame of a stream and of its head.
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const ENDS: u8 = 0b1;
    const WHOLE_HEAD: u8 = 0b100;
    /// GET, http and `/` by their places in the static table, and the authority `x`.
    const HEAD: [u8; 6] = [0x82, 0x86, 0x84, 0x01, 1, b'x'];

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// So many requests over HTTP/2 at once.
    fn burst(address: std::net::SocketAddr, requests: u32, flags: u8) -> std::net::TcpStream {
        let mut words = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
        words.extend((0..requests).flat_map(|number| frame(HEADERS, flags, 2 * number + 1, &HEAD)));
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(&words).unwrap();
        stream
    }

    /// The stream of the next answer; none where the connection ends before.
    fn answered(client: &mut std::net::TcpStream) -> Option<u32> {
        loop {
            let mut head = [0; 9];
            client.read_exact(&mut head).ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            client.read_exact(&mut vec![0; length as usize]).ok()?;
            if head[3] == HEADERS {
                return Some(u32::from_be_bytes(head[5..].try_into().unwrap()));
            }
        }
    }

    /// 1,500 frames of uploads come behind their answers. Of the 200 streams that the library would not remember, it
    /// would answer 1,200 frames, and close the connection.
    #[test]
    fn uploads_that_were_answered_before_they_came_leave_the_connection_open() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = Listener::bind(ListenOptions::new(([127, 0, 0, 1], 0).into())).unwrap();
        let address = listener.address();
        let gate = Gate::default();
        gate.open.add_permits(1);
        let (_stop, stopping) = watch::channel(false);
        runtime.spawn(listener.serve(vec![(runtime.handle().clone(), gate)], None, stopping));
        let client = std::thread::spawn(move || {
            let mut client = burst(address, 250, WHOLE_HEAD);
            for _ in 0..250 {
                answered(&mut client).unwrap();
            }
            for _ in 0..6 {
                let all = (0..250).flat_map(|number| frame(DATA, 0, 2 * number + 1, &[0; 512]));
                client.write_all(&all.collect::<Vec<u8>>()).unwrap();
            }
            client.write_all(&frame(HEADERS, ENDS | WHOLE_HEAD, 501, &HEAD)).unwrap();
            answered(&mut client)
        });
        runtime.block_on(async {
            while !client.is_finished() {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(client.join().unwrap(), Some(501));
    }

    /// Also one whose answer takes longer than it takes to give up.
    #[test]
    fn a_client_that_closes_its_side_with_its_requests_has_its_answers() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = Listener::bind(ListenOptions::new(([127, 0, 0, 1], 0).into())).unwrap();
        let mut stream = std::net::TcpStream::connect(listener.address()).unwrap();
        stream.write_all(&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2)).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let gate = Gate::default();
        let (_stop, stopping) = watch::channel(false);
        let services = vec![(runtime.handle().clone(), gate.clone())];
        runtime.spawn(listener.serve(services, None, stopping));
        let reading = std::thread::spawn(move || {
            let mut answers = String::new();
            stream.read_to_string(&mut answers).unwrap();
            answers
        });
        runtime.block_on(async {
            for number in 1..=2 {
                while gate.waiting.load(Ordering::SeqCst) < number && !reading.is_finished() {
                    tokio::task::yield_now().await;
                }
                let patience = Duration::from_nanos(2 * CLOSES_WITHIN_NS);
                tokio::time::timeout(patience, pending::<()>()).await.unwrap_or_default();
                gate.open.add_permits(1);
            }
            while !reading.is_finished() {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(reading.join().unwrap().matches("HTTP/1.1 200 OK").count(), 2);
    }

    /// In HTTP/1.1 each connection has the time for its first request only to ask it.
    #[test]
    fn a_connection_without_a_request_stays_for_the_time_of_idle_ones() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let patience = Duration::from_millis(50);
        let options = ListenOptions { patience, ..ListenOptions::new(([127, 0, 0, 1], 0).into()) };
        let listener = Listener::bind(options).unwrap();
        let address = listener.address();
        let gate = Gate::default();
        gate.open.add_permits(1);
        let (_stop, stopping) = watch::channel(false);
        runtime.spawn(listener.serve(vec![(runtime.handle().clone(), gate)], None, stopping));
        let client = std::thread::spawn(move || {
            let mut streams = [0; 2].map(|_| std::net::TcpStream::connect(address).unwrap());
            let [idle, slow] = &mut streams;
            let mut ask = || {
                idle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
                idle.read(&mut [0; 1000]).unwrap()
            };
            assert!(ask() > 0);
            // It takes longer than that for this one to be closed.
            slow.write_all(b"GET / HTTP/1.1\r\n").unwrap();
            assert_eq!(slow.read(&mut [0]).unwrap_or_default(), 0);
            ask()
        });
        runtime.block_on(async {
            while !client.is_finished() {
                tokio::task::yield_now().await;
            }
        });
        assert!(client.join().unwrap() > 0, "the idle connection was closed");
    }

    /// What is there when a time is over was only not read yet.
    #[test]
    fn what_has_come_is_read_before_a_time_is_over() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let came = async {
            tokio::task::yield_now().await;
            7
        };
        assert_eq!(runtime.block_on(in_time(Duration::ZERO, came)).unwrap(), 7);
        assert!(runtime.block_on(in_time(Duration::ZERO, pending::<()>())).is_err());
    }

    /// Of twenty thousand requests in one burst a bounded number begins, and all are answered in the end.
    #[test]
    fn requests_beyond_the_bound_begin_when_others_have_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = Listener::bind(ListenOptions {
            connections: 20,
            ..ListenOptions::new(([127, 0, 0, 1], 0).into())
        });
        let listener = listener.unwrap();
        let address = listener.address();
        let gate = Gate::default();
        let (stop, stopping) = watch::channel(false);
        let services = vec![(runtime.handle().clone(), gate.clone())];
        let serving = runtime.spawn(listener.serve(services, None, stopping));
        let clients = std::thread::spawn(move || {
            (0..20).map(|_| burst(address, 1_000, ENDS | WHOLE_HEAD)).collect::<Vec<_>>()
        });
        let waiting = || gate.waiting.load(Ordering::SeqCst);
        runtime.block_on(async {
            let (mut before, mut still) = (0, 0);
            // Nothing has begun for half a second.
            while before == 0 || still < 50 {
                tokio::time::timeout(Duration::from_millis(10), pending::<()>())
                    .await
                    .unwrap_or_default();
                still = if waiting() == before { still + 1 } else { 0 };
                before = waiting();
            }
        });
        // Three quarters of what may begin are for one address; each read may bring as many as a connection may have.
        let most = (8_192 + 2 * 20) / 4 * 3;
        assert!((most..=most + STREAMS as usize).contains(&waiting()), "{}", waiting());
        gate.open.add_permits(1);
        runtime.block_on(async {
            while gate.answered.load(Ordering::SeqCst) < 20_000 {
                tokio::task::yield_now().await;
            }
            stop.send_replace(true);
            serving.await.unwrap().unwrap();
        });
        drop(clients.join().unwrap());
    }
    /// It reads why, also where it has sent more than is read of it.
    #[test]
    fn a_client_that_alone_speaks_tls_or_alone_does_not_reads_an_answer_that_says_so() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = kendall_testing::certificate(folder.path(), "server");
        let tls = crate::serve::Tls { certificate, key, client_certificate: None };
        let greeting = [&[0x16, 3, 1, 0x40, 0][..], &[7; 100_000]].concat();
        let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(4_000);
        for (tls, said) in [(None, greeting), (Some(tls), request)] {
            let is_encrypted = tls.is_some();
            let options = ListenOptions { tls, ..ListenOptions::new(([127, 0, 0, 1], 0).into()) };
            let listener = Listener::bind(options).unwrap();
            let address = listener.address();
            let (_stop, stopping) = watch::channel(false);
            let services = vec![(runtime.handle().clone(), Gate::default())];
            runtime.spawn(listener.serve(services, None, stopping));
            let client = std::thread::spawn(move || {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                stream.write_all(&said).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).map(|_| answer)
            });
            runtime.block_on(async {
                while !client.is_finished() {
                    tokio::task::yield_now().await;
                }
            });
            let answer = client.join().unwrap().unwrap();
            assert_eq!(tls::answers_with_tls(&answer), is_encrypted, "{answer:?}");
            assert!(
                is_encrypted || answer.ends_with(b"This server speaks no TLS.\n"),
                "{answer:?}"
            );
        }
    }
}
