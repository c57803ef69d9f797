//! As much of an HTTP server as Prometheus needs: each connection gets one answer, and is closed.
//!
//! Who asks is foreign: a request has a bound in bytes and in time, an answer in time, and there are few at once. An
//! answer is written while it is made, so that it takes no memory; OpenMetrics marks its end, so that one that was cut
//! off is not taken for a complete one.

use std::fmt;
use std::io::{self, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::exposition::CONTENT_TYPE;

/// Answers that are being given at a time; Prometheus asks for one.
const MOST_ANSWERS: usize = 8;

/// Bytes of a request. That of Prometheus has some 300.
const LONGEST_REQUEST: usize = 8 << 10;

/// How long a request may take, and an answer.
const PATIENCE_TO_READ: Duration = Duration::from_secs(5);
const PATIENCE_TO_WRITE: Duration = Duration::from_secs(30);

/// How long those who have asked may still read when the server ends.
const GRACE: Duration = Duration::from_millis(500);

/// Writes the metrics.
type MetricsWriter = dyn Fn(&mut dyn fmt::Write) -> fmt::Result + Send + Sync;

/// Serves until it is dropped.
pub(super) struct Server {
    address: SocketAddr,
    /// Closed to end the thread.
    running: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    answers: Arc<AtomicUsize>,
}

impl Server {
    pub(super) fn start(
        address: SocketAddr,
        content: impl Fn(&mut dyn fmt::Write) -> fmt::Result + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (running, ended) = UnixStream::pair()?;
        let (content, answers): (Arc<MetricsWriter>, _) = (Arc::new(content), Arc::<AtomicUsize>::default());
        let given = Arc::clone(&answers);
        let thread = thread::Builder::new().name("metrics".to_owned());
        let thread = thread.spawn(move || accept(&listener, &ended, &content, &given))?;
        Ok(Server { address, running: Some(running), thread: Some(thread), answers })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let begin = Instant::now();
        while self.answers.load(Ordering::Acquire) > 0 && begin.elapsed() < GRACE {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Answers whoever connects, until the other end of `ended` is closed.
fn accept(listener: &TcpListener, ended: &UnixStream, content: &Arc<MetricsWriter>, answers: &Arc<AtomicUsize>) {
    loop {
        let mut events = [PollFd::new(listener, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        if poll(&mut events, None).is_err() {
            continue;
        }
        if !events[1].revents().is_empty() {
            return;
        }
        // Who has gone again, or when there are no descriptors left: the next one may be luckier.
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let answer = CountedAnswer::new(answers);
        if answer.is_too_many() {
            continue;
        }
        let content = Arc::clone(content);
        let thread = thread::Builder::new().name("metrics".to_owned());
        // Without a thread the connection is closed without an answer.
        let _ = thread.spawn(move || {
            let _answer = answer;
            // Who asked has gone, or is too slow.
            let _ = serve(stream, &*content);
        });
    }
}

/// Counts an answer until it is dropped.
struct CountedAnswer(Arc<AtomicUsize>, usize);

impl CountedAnswer {
    fn new(answers: &Arc<AtomicUsize>) -> CountedAnswer {
        let before = answers.fetch_add(1, Ordering::AcqRel);
        CountedAnswer(Arc::clone(answers), before)
    }

    fn is_too_many(&self) -> bool {
        self.1 >= MOST_ANSWERS
    }
}

impl Drop for CountedAnswer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(stream: TcpStream, content: &MetricsWriter) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let request = read_request(&stream)?;
    let mut writer = BufWriter::with_capacity(64 << 10, Until::new(&stream, PATIENCE_TO_WRITE));
    let (method, target) = first_line(&request);
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => {
            write!(writer, "HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE}\r\nConnection: close\r\n\r\n")?;
            if method == b"GET" {
                content(&mut TextBytes(&mut writer)).map_err(io::Error::other)?;
            }
        }
        (b"GET" | b"HEAD", _) => refuse(&mut writer, "404 Not Found", "the metrics are at /metrics")?,
        ([], _) => refuse(&mut writer, "400 Bad Request", "this is not HTTP")?,
        _ => refuse(&mut writer, "405 Method Not Allowed\r\nAllow: GET, HEAD", "the metrics can only be read")?,
    }
    writer.flush()?;
    stream.shutdown(std::net::Shutdown::Write)
}

fn refuse(writer: &mut impl Write, status: &str, why: &str) -> io::Result<()> {
    let length = why.len() + 1;
    let head = format!("Content-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close");
    write!(writer, "HTTP/1.1 {status}\r\n{head}\r\n\r\n{why}\n")
}

/// Reads until the empty line behind the head. What follows it is not read: no request that is served has more.
fn read_request(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut reader = Until::new(stream, PATIENCE_TO_READ);
    let mut request = Vec::new();
    let mut part = [0; 1 << 10];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match reader.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count if request.len() + count > LONGEST_REQUEST => return Err(io::ErrorKind::InvalidData.into()),
            count => request.extend_from_slice(&part[..count]),
        }
    }
    Ok(request)
}

/// Method and target; empty where the request is none of HTTP/1.
fn first_line(request: &[u8]) -> (&[u8], &[u8]) {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    match words[..] {
        [method, target, version] if version.starts_with(b"HTTP/1.") => (method, target),
        _ => (b"", b""),
    }
}

/// A connection that ends at a time.
struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Until<'_> {
    fn new(stream: &TcpStream, patience: Duration) -> Until<'_> {
        Until { stream, end: Instant::now() + patience }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Text into bytes.
struct TextBytes<'a, W>(&'a mut W);

impl<W: Write> fmt::Write for TextBytes<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_all(text.as_bytes()).map_err(|_| fmt::Error)
    }
}
