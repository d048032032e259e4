//! Waiting for writes.

use std::time::{Duration, Instant};

use etcd_client::WatchOptions;

use super::Shared;
use super::request::{Answer, Request};
use crate::control::{Changed, ControlError, Revision};

/// The pause after a watch that has failed, as when the member that was asked has stopped.
const PAUSE: Duration = Duration::from_millis(100);

impl Shared {
    /// Reads, and watches until the next read. A watch only says when to read: it ends after the time of a call at the
    /// latest, so that a watch that hears nothing any more does no harm.
    pub(super) async fn changed_since(
        &self,
        prefix: String,
        since: Revision,
        until: Instant,
    ) -> Result<Changed, ControlError> {
        loop {
            let Answer::Looked(changed, newest) = self.ask(Request::LookSince(prefix.clone(), since)).await?
            else {
                unreachable!("a look is answered with what it has seen")
            };
            let left = until.saturating_duration_since(Instant::now());
            if changed == Changed::Yes || left.is_zero() {
                return Ok(changed);
            }
            let at_most = left.min(self.call_max);
            if let Ok(Err(_)) = tokio::time::timeout(at_most, self.watch(&prefix, newest)).await {
                tokio::time::sleep(PAUSE.min(left)).await;
            }
        }
    }

    /// Returns at the first write after this one.
    async fn watch(&self, prefix: &str, newest: Revision) -> Result<(), etcd_client::Error> {
        let mut client = self.preferred().connection().client.watch_client();
        let begin = i64::try_from(newest.0).unwrap_or(i64::MAX).saturating_add(1);
        let options = WatchOptions::new().with_prefix().with_start_revision(begin);
        let mut stream = client.watch(self.path(prefix), Some(options)).await?;
        while let Some(told) = stream.message().await? {
            if !told.events().is_empty() {
                return Ok(());
            }
            // As when the member has no leader any more, or the writes after that one were compacted.
            if told.canceled() {
                break;
            }
        }
        Err(etcd_client::Error::WatchError("it has ended".to_owned()))
    }
}
