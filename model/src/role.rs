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
        /// Waits for a message without receiving it. With a request, that is what receives it.
        Probe = "probe",
        /// Waits for the end of a request.
        Wait = "wait",
        /// Asks whether a request has ended.
        Test = "test",
        /// Prepares to send a message any number of times.
        SendInit = "send_init",
        /// Prepares to receive a message any number of times.
        RecvInit = "recv_init",
        /// Begins what was prepared.
        Start = "start",
        /// Asks to undo what a request has begun.
        Cancel = "cancel",
        /// Gives a request back without waiting for its end.
        RequestFree = "request_free",
        /// All ranks of a communicator take part, in a way that no other event names.
        Collective = "collective",
        /// The root sends the same to all.
        Broadcast = "broadcast",
        /// All send to the root.
        Gather = "gather",
        /// All send to the root, each as much as it wants.
        GatherV = "gatherv",
        /// The root sends a part to each.
        Scatter = "scatter",
        /// The root sends a part to each, each of its own size.
        ScatterV = "scatterv",
        /// All send the same to all.
        Allgather = "allgather",
        /// All send the same to all, each as much as it wants.
        AllgatherV = "allgatherv",
        /// All send a part to each.
        Alltoall = "alltoall",
        /// All send a part to each, each of its own size.
        AlltoallV = "alltoallv",
        /// The root gets the sum of all.
        Reduce = "reduce",
        /// All get the sum of all.
        Allreduce = "allreduce",
        /// Each gets a part of the sum of all.
        ReduceScatter = "reduce_scatter",
        /// Each gets a part of the sum of all, of one size.
        ReduceScatterBlock = "reduce_scatter_block",
        /// Each gets the sum of those up to it.
        Scan = "scan",
        /// Each gets the sum of those before it.
        Exscan = "exscan",
        /// Makes a communicator of one, and of another one's members as its other side.
        IntercommunicatorCreate = "intercommunicator_create",
        /// Makes a communicator of another.
        CommunicatorCreate = "communicator_create",
        /// Says which rank the process has in a communicator.
        CommunicatorRank = "communicator_rank",
        /// Makes memory of all ranks of a communicator accessible to each of them.
        WindowCreate = "window_create",
        /// Ends that.
        WindowFree = "window_free",
        /// Frees a communicator.
        CommunicatorFree = "communicator_free",
        /// Writes memory of another rank, and returns when its buffer may be used again.
        RmaPut = "rma_put",
        /// Reads memory of another rank.
        RmaGet = "rma_get",
        /// Reads and changes memory of another rank in one step.
        RmaAtomic = "rma_atomic",
        /// Begins to write memory of another rank.
        RmaIput = "rma_iput",
        /// Begins to read memory of another rank.
        RmaIget = "rma_iget",
        /// Begins to change memory of another rank in one step.
        RmaIatomic = "rma_iatomic",
        /// Waits until accesses to other ranks' memory are done.
        RmaComplete = "rma_complete",
        /// Waits until their buffers may be used again.
        RmaCompleteHere = "rma_complete_here",
        /// Waits for that, and for all ranks of the window.
        RmaFence = "rma_fence",
        /// Begins accesses to the memory of one rank, or of all.
        RmaLock = "rma_lock",
        /// Ends them.
        RmaUnlock = "rma_unlock",
        /// Orders accesses to other ranks' memory, or those of others to the own.
        RmaSync = "rma_sync",
        /// Opens a file or a connection.
        IoOpen = "io_open",
        /// Closes it.
        IoClose = "io_close",
        /// Reads.
        IoRead = "io_read",
        /// Writes.
        IoWrite = "io_write",
        /// Does something else with a file.
        IoOther = "io_other",
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
    /// Whether it says something of messages between processes, their requests, or their communicators.
    pub fn is_message(self) -> bool {
        use FunctionEvent::{Allocate, Await, Free, Lock, RmaSync, TryLock, Unlock};
        !self.is_io() && !matches!(self, Allocate | Await | Free | Lock | RmaSync | TryLock | Unlock)
    }

    /// Whether it is about files or connections.
    pub fn is_io(self) -> bool {
        use FunctionEvent::{IoClose, IoOpen, IoOther, IoRead, IoWrite};
        matches!(self, IoClose | IoOpen | IoOther | IoRead | IoWrite)
    }

    /// Whether all ranks of a communicator, or of a window, take part.
    pub fn is_collective(self) -> bool {
        use FunctionEvent::{
            Allgather, AllgatherV, Allreduce, Alltoall, AlltoallV, Barrier, Broadcast, Collective, Exscan, Gather,
            GatherV, Reduce, ReduceScatter, ReduceScatterBlock, RmaFence, Scan, Scatter, ScatterV, WindowCreate,
            WindowFree,
        };
        matches!(
            self,
            Allgather
                | AllgatherV
                | Allreduce
                | Alltoall
                | AlltoallV
                | Barrier
                | Broadcast
                | Collective
                | Gather
                | GatherV
                | Reduce
                | Exscan
                | ReduceScatter
                | ReduceScatterBlock
                | RmaFence
                | Scan
                | Scatter
                | ScatterV
                | WindowCreate
                | WindowFree
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
        /// The rank that is asked for where a call also sends.
        RecvPeer = "recv_peer",
        /// The tag that is asked for where a call also sends.
        RecvTag = "recv_tag",
        /// Bytes that there is room for where a call also sends.
        Posted = "posted",
        /// Whether something has happened; 0 if not.
        Flag = "flag",
        /// Places of requests among those of the call.
        Index = "index",
        /// How many requests, or places, there are.
        Count = "count",
        /// A communicator, by the same number on all its ranks.
        Communicator = "communicator",
        /// A communicator that the call made.
        NewCommunicator = "new_communicator",
        /// The own rank in the communicator that the call made.
        NewRank = "new_rank",
        /// Ranks of one color get one communicator.
        Color = "color",
        /// The order of ranks in the communicator that the call made.
        Key = "key",
        /// The communicator by which two sides find each other.
        PeerCommunicator = "peer_communicator",
        /// The own side's rank by which two sides find each other.
        Leader = "leader",
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
        /// An address of memory that is written.
        Target = "target",
        /// An address of memory.
        Address = "address",
        /// A lock, a condition or a barrier.
        Lock = "lock",
        /// An error that the call reports.
        Error = "error",
    }
}
