// A loop of franz-go as a peer of a copy: it reads a topic and sends its records to the same partitions of another
// one. It reads a JSON document with the names below from its standard input.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type task struct {
	Source, Target string // bootstrap.servers
	Topic, To      string
	Records        int
}

func main() {
	var copied task
	if err := json.NewDecoder(os.Stdin).Decode(&copied); err != nil {
		log.Fatal(err)
	}
	reader := client(
		kgo.SeedBrokers(strings.Split(copied.Source, ",")...),
		kgo.ConsumeTopics(copied.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(64<<20),
		kgo.FetchMaxPartitionBytes(8<<20),
	)
	defer reader.Close()
	writer := client(
		kgo.SeedBrokers(strings.Split(copied.Target, ",")...),
		kgo.DefaultProduceTopic(copied.To),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.ProducerLinger(20*time.Millisecond),
		kgo.MaxBufferedRecords(200_000),
	)
	defer writer.Close()
	all := context.Background()
	for read := 0; read < copied.Records; {
		fetches := reader.PollFetches(all)
		if errors := fetches.Errors(); len(errors) > 0 {
			log.Fatal(errors)
		}
		fetches.EachRecord(func(from *kgo.Record) {
			read++
			to := kgo.Record{
				Partition: from.Partition,
				Key:       from.Key,
				Value:     from.Value,
				Headers:   from.Headers,
				Timestamp: from.Timestamp,
			}
			writer.Produce(all, &to, func(_ *kgo.Record, err error) {
				if err != nil {
					log.Fatal(err)
				}
			})
		})
	}
	if err := writer.Flush(all); err != nil {
		log.Fatal(err)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	return made
}
