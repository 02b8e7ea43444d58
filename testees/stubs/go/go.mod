module my_testee

go 1.26

require kfuzz_testee v0.0.0

replace kfuzz_testee => ./kit
