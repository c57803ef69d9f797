//! A recording's figures for Prometheus: what its functions did so far, in the OpenMetrics text format over HTTP.
//!
//! The sink adds up, and never waits for who asks: each answer is made of a copy, on a thread of its own. Memory is
//! bounded by the functions, not by the calls. It does not know single calls, arguments or call paths.

mod exposition;
mod figures;
mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rtrace_model::{Item, Sink, SinkError};

use self::figures::Figures;
use self::server::Server;

/// The sink that serves `http://ADDRESS/metrics` until it is dropped.
pub struct OpenMetrics {
    figures: Arc<Mutex<Figures>>,
    server: Server,
}

impl OpenMetrics {
    /// Serves from now on; port 0 is one that is free. `is_folded`: whether calls are aggregated, so that the sums of
    /// all are those of the profile.
    ///
    /// # Errors
    /// The address is in use or none of this machine.
    pub fn listen(address: SocketAddr, is_folded: bool) -> io::Result<OpenMetrics> {
        let figures = Arc::new(Mutex::new(Figures::new(is_folded)));
        let told = Arc::clone(&figures);
        let server = Server::start(address, move |writer| {
            let shown = lock(&told).shown();
            exposition::write(shown, writer)
        })?;
        Ok(OpenMetrics { figures, server })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }
}

fn lock(figures: &Mutex<Figures>) -> MutexGuard<'_, Figures> {
    figures.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for OpenMetrics {
    fn take(&mut self, item: &Item) -> Result<(), SinkError> {
        lock(&self.figures).take(item);
        Ok(())
    }
}
