// C calls Go calls C, on goroutines that change threads, and panics through callbacks.
package main

/*
#cgo LDFLAGS: -lz
#include <zlib.h>
extern int goCallback(int);
static int through(int n) { return goCallback(n) + 1; }
*/
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"
)

//export goCallback
func goCallback(n C.int) C.int {
	runtime.Gosched()
	if n%10 == 9 {
		panic(int(n))
	}
	return n
}

func attempt(n int) (result int) {
	defer func() {
		if recover() != nil {
			result = -1
		}
	}()
	return int(C.through(C.int(n)))
}

func main() {
	fmt.Println("ready", os.Getpid())
	bufio.NewReader(os.Stdin).ReadString('\n')
	var group sync.WaitGroup
	sums := make([]uint64, 20)
	for i := range sums {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			data := []byte(fmt.Sprint("goroutine ", i))
			for n := 0; n < 50; n++ {
				sum := C.crc32(0, (*C.Bytef)(unsafe.Pointer(&data[0])), C.uInt(len(data)))
				sums[i] += uint64(sum) + uint64(attempt(n))
			}
		}(i)
	}
	group.Wait()
	var sum uint64
	for _, s := range sums {
		sum += s
	}
	fmt.Println(sum)
	fmt.Println("truth crc32 1000 0")
}
