// SPDX-License-Identifier: Apache-2.0 OR MIT
// Goroutines whose stacks grow while they call, panics, and calls of C.
package main

// static __attribute__((noinline)) int twice(int n) { __asm__ volatile("" : "+r"(n)); return n * 2; }
import "C"

import (
	"fmt"
	"sync"
)

const goroutines = 200

//go:noinline
func deep(n int) int {
	var room [64]byte
	room[n%64] = byte(n)
	if n == 0 {
		return int(room[3])
	}
	return deep(n-1) + int(room[n%64])
}

// A frame that is larger than a goroutine's first stack.
//
//go:noinline
func wide(n int) int {
	var room [9000]byte
	for i := range room {
		room[i] = byte(n + i)
	}
	return leaf(int(room[n%9000]))
}

//go:noinline
func leaf(n int) int { return n * 3 }

// Fails at its first access to memory where it is given nothing.
//
//go:noinline
func load(n *int) int { return *n }

//go:noinline
func recovers(n *int) (result int) {
	defer func() {
		if recover() != nil {
			result = 1
		}
	}()
	return load(n)
}

func work(n int, sums chan<- int, group *sync.WaitGroup) {
	defer group.Done()
	sum := deep(100) + wide(n) + recovers(nil) + recovers(&n)
	for i := 0; i < 10; i++ {
		sum += int(C.twice(C.int(i)))
	}
	sums <- sum
}

func main() {
	var group sync.WaitGroup
	sums := make(chan int, goroutines)
	for n := 0; n < goroutines; n++ {
		group.Add(1)
		go work(n, sums, &group)
	}
	group.Wait()
	close(sums)
	sum := 0
	for n := range sums {
		sum += n
	}
	fmt.Println("sum", sum)
}
