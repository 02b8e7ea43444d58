module kfuzz

go 1.23
