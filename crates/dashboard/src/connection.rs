//! Connections: not too many at a time, and none that is held open for nothing.
//!
//! Whoever connects and says nothing, says it slowly, or does not listen to the answer, would otherwise hold a connection for ever. A clock runs while it is the
//! other side's turn, and ends the connection when it runs out.
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

/// How long a page may take to ask, or to listen. News come more often than that.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Connections at a time; others wait until one ends.
const MOST: usize = 128;

/// Takes connections, one for each free seat.
pub(super) struct Seats {
    listener: TcpListener,
    free: Arc<Semaphore>,
    patience: Duration,
}

impl Seats {
    pub(super) fn new(listener: TcpListener, patience: Duration) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(MOST)), patience }
    }
}

impl Listener for Seats {
    type Io = Seat;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Seat, SocketAddr) {
        // The semaphore is never closed.
        let place = Arc::clone(&self.free).acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => return (Seat::new(stream, place, self.patience), address),
                // The other side is gone already, or there are too many files open: neither lasts.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// When a connection ends unless something happens; nothing while an answer is being made.
#[derive(Clone)]
pub(super) struct Clock {
    end: Arc<Mutex<Option<Instant>>>,
    patience: Duration,
}

impl Clock {
    fn new(patience: Duration) -> Self {
        Self { end: Arc::new(Mutex::new(Some(Instant::now() + patience))), patience }
    }

    /// It is the other side's turn.
    fn start(&self) {
        self.set(Some(Instant::now() + self.patience));
    }

    /// It is ours.
    fn stop(&self) {
        self.set(None);
    }

    /// The other side has taken something.
    fn go_on(&self) {
        if self.end().is_some() {
            self.start();
        }
    }

    fn end(&self) -> Option<Instant> {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, end: Option<Instant>) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }
}

impl Connected<IncomingStream<'_, Seats>> for Clock {
    fn connect_info(stream: IncomingStream<'_, Seats>) -> Self {
        stream.io().clock.clone()
    }
}

/// Stops the clock of a connection while its request is answered.
pub(super) async fn hold_clock(ConnectInfo(clock): ConnectInfo<Clock>, request: Request, next: Next) -> Response {
    clock.stop();
    let response = next.run(request).await;
    clock.start();
    response
}

/// What a request brings; it may not be long, nor take long.
pub(super) async fn body(request: Request, patience: Duration) -> Option<String> {
    const LONGEST: usize = 64 << 10;
    let bytes = timeout(patience, to_bytes(request.into_body(), LONGEST)).await.ok()?.ok()?;
    String::from_utf8(bytes.into()).ok()
}

/// A connection with its seat.
pub(super) struct Seat {
    stream: TcpStream,
    clock: Clock,
    alarm: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Seat {
    fn new(stream: TcpStream, place: Option<OwnedSemaphorePermit>, patience: Duration) -> Self {
        let clock = Clock::new(patience);
        Self { stream, alarm: Box::pin(sleep(patience)), clock, _place: place }
    }

    /// Fails if the time is over; else sees to it that somebody looks again when it is.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(end) = self.clock.end() else { return Ok(()) };
        if self.alarm.deadline() != end {
            self.alarm.set(sleep_until(end));
        }
        match self.alarm.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::TimedOut, "nothing came in time")),
            Poll::Pending => Ok(()),
        }
    }

    /// What came of writing: what is taken winds the clock up, what is not lets it run on.
    fn written(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(_) => self.clock.go_on(),
            Poll::Pending => self.check(context)?,
        }
        written
    }
}

impl AsyncRead for Seat {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // What trickles in does not wind the clock up.
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Seat {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
