package consumertest

// NeedJava is for tests that start Kafka in another process.
var NeedJava = needJava
