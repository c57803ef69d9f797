// Goroutines whose stacks grow and move while calls are open, and panics that are recovered.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
)

//go:noinline
func deep(n int) int {
	var room [64]int
	for i := range room {
		room[i] = n
	}
	if n == 0 {
		return room[7]
	}
	return deep(n-1) + room[n%64]
}

//go:noinline
func fails(n int) {
	if n%2 == 1 {
		panic(n)
	}
}

func attempt(n int) (caught int) {
	defer func() {
		if recover() != nil {
			caught = 1
		}
	}()
	fails(n)
	return 0
}

func main() {
	fmt.Println("ready", os.Getpid())
	bufio.NewReader(os.Stdin).ReadString('\n')
	var group sync.WaitGroup
	sums := make([]int, 200)
	for i := range sums {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			sums[i] = deep(100)
		}(i)
	}
	group.Wait()
	sum, caught := 0, 0
	for i, s := range sums {
		sum += s
		caught += attempt(i)
	}
	fmt.Println(sum, caught)
	fmt.Println("truth main.deep 20200 0")
	fmt.Println("truth main.fails 200 100")
}
