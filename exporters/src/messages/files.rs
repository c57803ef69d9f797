//! The files that a process has open, and what it does with them.
//!
//! A handle is used again when its file has been closed. What begins in one call and ends in another has a request, or is the
//! only such operation of its file.

use std::collections::HashMap;

use rtrace_model::{FunctionEvent, Role};

use super::calls::MessageCall;
use super::communicators::CommunicatorId;
use super::event::{FileAct, MessageKind, Size};

/// The open files of a process, by handle.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    open: HashMap<i64, OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: u64,
    /// What has begun without a request.
    split: Option<FileOperation>,
}

/// A read or write that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileOperation {
    file: u64,
    operation: u64,
    /// Bytes that the program gives: all of them are written, unless it is told another number.
    given: Option<u64>,
}

impl FileOperation {
    /// It has ended, and the program was told so many bytes.
    pub(super) fn done(self, told: Option<u64>) -> MessageKind {
        let bytes = told.map(Size::Exact).or(self.given.map(Size::Posted)).unwrap_or(Size::Unknown);
        MessageKind::File { file: self.file, act: FileAct::Done { operation: self.operation, bytes } }
    }
}

impl OpenFiles {
    /// What a call does, whether each is at its return, and what it begins that a request ends. Files and operations get
    /// the next numbers.
    pub(super) fn follow(
        &mut self,
        call: &MessageCall,
        communicator: Option<CommunicatorId>,
        numbers: &mut u64,
    ) -> (Vec<(bool, MessageKind)>, Option<FileOperation>) {
        let mut acts = Vec::new();
        let mut number = || {
            *numbers += 1;
            *numbers - 1
        };
        if call.event == FunctionEvent::IoOpen {
            if let Some(handle) = call.value(Role::NewHandle) {
                let file = number();
                self.open.insert(handle, OpenFile { file, split: None });
                acts.push((true, MessageKind::File { file, act: FileAct::Opened(communicator) }));
            }
            return (acts, None);
        }
        let Some(handle) = call.value(Role::Handle) else { return (acts, None) };
        let open = self.open.entry(handle).or_insert_with(|| {
            let file = number();
            acts.push((false, MessageKind::File { file, act: FileAct::Found }));
            OpenFile { file, split: None }
        });
        let file = open.file;
        let mut act = |at_exit, act| acts.push((at_exit, MessageKind::File { file, act }));
        let told = call.unsigned(Role::Received);
        match call.event {
            FunctionEvent::IoClose => {
                self.open.remove(&handle);
                act(true, FileAct::Closed);
            }
            FunctionEvent::IoRead | FunctionEvent::IoWrite => {
                let (is_write, asked) = (call.event == FunctionEvent::IoWrite, call.unsigned(Role::Bytes));
                let begun = FileOperation { file, operation: number(), given: asked.filter(|_| is_write) };
                let operation = begun.operation;
                let is_nonblocking = !call.has(Role::Received);
                act(false, FileAct::Begun { operation, is_write, asked, is_nonblocking });
                if !is_nonblocking {
                    acts.push((true, begun.done(told)));
                    return (acts, None);
                }
                act(true, FileAct::Issued(operation));
                if call.has(Role::Request) {
                    return (acts, Some(begun));
                }
                open.split = Some(begun);
            }
            _ if call.has(Role::Received) => {
                acts.extend(open.split.take().map(|begun| (true, begun.done(told))));
            }
            _ => {}
        }
        (acts, None)
    }
}
