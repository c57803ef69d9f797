// SPDX-License-Identifier: Apache-2.0 OR MIT
// The library under test: functions whose calls are known by construction. In the comments, what
// one call of each looks like in the notation of harness.h.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

extern volatile long noted; // written by programs, never by the functions

int leaf(int n);		  // leaf
int next(int n);		  // next, which is over after a few instructions
int middle(int n);		  // middle(leaf*2)
int outer(int n);		  // outer(middle(leaf*2) leaf)
int choose(int n);		  // choose, or choose(leaf) where n % 6 == 5
int recurse(int n);		  // recurse(recurse(...)): n + 1 calls
int ping(int n);		  // ping(pong(ping(...))): n + 1 calls
int pong(int n);		  // pong(ping(pong(...))): n + 1 calls
int tail(int n);		  // tail, whose exit is a jump to leaf
void visit(void (*callback)(void *), void *argument); // visit(what callback calls)

#ifdef __cplusplus
}
#endif
