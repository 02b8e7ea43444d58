module kfuzz_testee

go 1.26
