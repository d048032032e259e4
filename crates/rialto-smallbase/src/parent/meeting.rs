//! [`Meeting`]: the socket where nodes connect for orders, and ask the control store.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rialto_cluster::control::MemoryStore;

use crate::control;
use crate::wire::{Hello, receive};

/// A connection whose first line does not come in this time is ended.
const HELLO_WITHIN: Duration = Duration::from_secs(30);

/// Where nodes connect. It ends when it is dropped.
pub struct Meeting {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    store: MemoryStore,
    /// Connections for orders that the parent has not taken yet.
    nodes: Mutex<BTreeMap<u32, UnixStream>>,
    came: Condvar,
    is_over: AtomicBool,
}

impl Meeting {
    /// Opens the socket, in the directory of temporary files: a path has to be short.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(store: MemoryStore) -> io::Result<Meeting> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let nth = OPENED.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rialto-smallbase-{}-{nth}", std::process::id()));
        // One of an earlier process of this number.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let shared = Arc::new(Shared {
            store,
            nodes: Mutex::default(),
            came: Condvar::new(),
            is_over: AtomicBool::new(false),
        });
        let taking = shared.clone();
        let take = move || {
            for stream in listener.incoming() {
                if taking.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let taking = taking.clone();
                // A connection that ends, or says what makes no sense, concerns no other one.
                thread::spawn(move || taking.take(stream));
            }
        };
        Ok(Meeting { path, shared, thread: Some(thread::spawn(take)) })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The connection of a node, if it comes in this time.
    pub fn node(&self, node: u32, patience: Duration) -> Option<UnixStream> {
        let nodes = self.shared.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |nodes: &mut BTreeMap<u32, UnixStream>| !nodes.contains_key(&node);
        let waited = self.shared.came.wait_timeout_while(nodes, patience, is_missing);
        let (mut nodes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        nodes.remove(&node)
    }
}

impl Shared {
    fn take(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(HELLO_WITHIN))?;
        // A node sends no second line before the answer.
        let hello = receive(&mut BufReader::new(&stream))?;
        stream.set_read_timeout(None)?;
        match hello {
            Some(Hello::Node(node)) => {
                self.nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(node, stream);
                self.came.notify_all();
                Ok(())
            }
            Some(Hello::Store(request)) => control::serve(&self.store, request, &mut stream),
            None => Ok(()),
        }
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // The thread that takes connections sees that it is over.
        let _ = UnixStream::connect(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}
