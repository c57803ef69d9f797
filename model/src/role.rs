//! What functions and values mean to a consumer that does not know the library.

use serde::{Deserialize, Serialize};

use crate::words;

words! {
    /// What a function of a parallel program does, for consumers such as OTF2.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    FunctionEvent {
        /// Sends a message, and returns when its buffer may be used again.
        Send = "send",
        /// Receives a message.
        Recv = "recv",
        /// Sends one and receives another.
        SendRecv = "sendrecv",
        /// Begins to send a message.
        Isend = "isend",
        /// Begins to receive a message.
        Irecv = "irecv",
        /// Waits for the end of a request.
        Wait = "wait",
        /// Asks whether a request has ended.
        Test = "test",
        /// All ranks of a communicator take part.
        Collective = "collective",
        /// Makes a communicator of another.
        CommunicatorCreate = "communicator_create",
        /// Frees a communicator.
        CommunicatorFree = "communicator_free",
        /// Writes memory of another rank.
        RmaPut = "rma_put",
        /// Reads memory of another rank.
        RmaGet = "rma_get",
        /// Reads and changes memory of another rank in one step.
        RmaAtomic = "rma_atomic",
        /// Waits until accesses to other ranks' memory are done or ordered.
        RmaSync = "rma_sync",
        /// Opens a file or a connection.
        IoOpen = "io_open",
        /// Closes it.
        IoClose = "io_close",
        /// Reads.
        IoRead = "io_read",
        /// Writes.
        IoWrite = "io_write",
        /// Gives memory.
        Allocate = "allocate",
        /// Takes memory back.
        Free = "free",
        /// Waits for a lock and takes it.
        Lock = "lock",
        /// Takes a lock if it is free.
        TryLock = "trylock",
        /// Gives a lock back.
        Unlock = "unlock",
        /// Waits until others signal.
        Await = "await",
        /// Waits until all have come.
        Barrier = "barrier",
    }
}

impl FunctionEvent {
    /// Whether it sends, receives, or waits for what is sent, or makes what messages refer to.
    pub fn is_message(self) -> bool {
        use FunctionEvent::{
            Collective, CommunicatorCreate, CommunicatorFree, Irecv, Isend, Recv, RmaAtomic, RmaGet, RmaPut, Send,
            SendRecv, Test, Wait,
        };
        matches!(
            self,
            Send | Recv
                | SendRecv
                | Isend
                | Irecv
                | Wait
                | Test
                | Collective
                | CommunicatorCreate
                | CommunicatorFree
                | RmaPut
                | RmaGet
                | RmaAtomic
        )
    }
}

words! {
    /// What a value means, for consumers such as OTF2.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    Role {
        /// The rank at the other end of a message; of the target of an access to memory.
        Peer = "peer",
        /// The rank that the received part of a message comes from.
        Source = "source",
        /// The tag of a message.
        Tag = "tag",
        /// The tag of the received message.
        SourceTag = "source_tag",
        /// A communicator, by the same number on all its ranks.
        Communicator = "communicator",
        /// A communicator that the call made.
        NewCommunicator = "new_communicator",
        /// The own rank in the communicator.
        Rank = "rank",
        /// The root of a collective operation.
        Root = "root",
        /// A request that a later call ends.
        Request = "request",
        /// Bytes that the call moves, or asks for.
        Bytes = "bytes",
        /// Bytes that are received, where a call also sends.
        Received = "received",
        /// A file descriptor, a stream, a plan, or another object that calls have in common.
        Handle = "handle",
        /// An object that the call made.
        NewHandle = "new_handle",
        /// The path of a file.
        Path = "path",
        /// A place in a file.
        Offset = "offset",
        /// An address of memory.
        Address = "address",
        /// A lock, a condition or a barrier.
        Lock = "lock",
        /// An error that the call reports.
        Error = "error",
    }
}
