package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	hubs "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

type hubScenario struct {
	name string
	run  func(context.Context)
}

var hubScenarios = []hubScenario{
	{"a hub: keys, partitions, positions", hub},
	{"a hub with checkpoints", checkpoints},
}

func hub(within context.Context) {
	out := producer("hub")
	defer out.Close(within)
	expect(must(out.GetEventHubProperties(within, nil)).PartitionIDs, []string{"0", "1"})
	sendEvents(within, out, &hubs.EventDataBatchOptions{PartitionID: to.Ptr("0")}, "1", "2", "3")
	sendEvents(within, out, &hubs.EventDataBatchOptions{PartitionKey: to.Ptr("k")}, "4")
	last := must(out.GetPartitionProperties(within, "0", nil)).LastEnqueuedSequenceNumber
	in := must(hubs.NewConsumerClientFromConnectionString(hubsString(), "hub", hubs.DefaultConsumerGroup, nil))
	defer in.Close(within)
	from := must(in.NewPartitionClient("0", &hubs.PartitionClientOptions{
		StartPosition: hubs.StartPosition{SequenceNumber: to.Ptr(last), Inclusive: true},
	}))
	defer from.Close(within)
	events := must(from.ReceiveEvents(within, 1, nil))
	expect(events[0].SequenceNumber, last)
	first := must(in.NewPartitionClient("0", &hubs.PartitionClientOptions{StartPosition: hubs.StartPosition{Earliest: to.Ptr(true)}}))
	defer first.Close(within)
	found := []string{}
	for len(found) < 3 {
		for _, each := range must(first.ReceiveEvents(within, 3-len(found), nil)) {
			found = append(found, string(each.Body))
		}
	}
	expect(found, []string{"1", "2", "3"})
}

func checkpoints(within context.Context) {
	out := producer("checkpoints")
	defer out.Close(within)
	store := &memory{}
	sendEvents(within, out, &hubs.EventDataBatchOptions{PartitionKey: to.Ptr("k")}, "1", "2")
	expect(process(within, store, 2), []string{"1", "2"})
	sendEvents(within, out, &hubs.EventDataBatchOptions{PartitionKey: to.Ptr("k")}, "3")
	expect(process(within, store, 1), []string{"3"})
}

// process reads with a processor until it has count events and has checkpointed each.
func process(within context.Context, store *memory, count int) []string {
	running, stop := context.WithCancel(within)
	defer stop()
	in := must(hubs.NewConsumerClientFromConnectionString(hubsString(), "checkpoints", hubs.DefaultConsumerGroup, nil))
	defer in.Close(within)
	processor := must(hubs.NewProcessor(in, store, &hubs.ProcessorOptions{
		UpdateInterval: 200 * time.Millisecond,
		StartPositions: hubs.StartPositions{Default: hubs.StartPosition{Earliest: to.Ptr(true)}},
	}))
	found := make(chan string)
	go func() {
		for {
			partition := processor.NextPartitionClient(running)
			if partition == nil {
				return
			}
			go func() {
				defer partition.Close(within)
				for {
					events, err := partition.ReceiveEvents(running, 1, nil)
					if err != nil {
						return
					}
					for _, each := range events {
						check(partition.UpdateCheckpoint(within, each, nil))
						found <- string(each.Body)
					}
				}
			}()
		}
	}()
	go processor.Run(running)
	seen := []string{}
	for len(seen) < count {
		select {
		case each := <-found:
			seen = append(seen, each)
		case <-time.After(30 * time.Second):
			panic(fmt.Errorf("%d of %d events arrived", len(seen), count))
		}
	}
	slices.Sort(seen)
	return seen
}

func producer(name string) *hubs.ProducerClient {
	return must(hubs.NewProducerClientFromConnectionString(hubsString(), name, nil))
}

func sendEvents(within context.Context, to *hubs.ProducerClient, options *hubs.EventDataBatchOptions, texts ...string) {
	batch := must(to.NewEventDataBatch(within, options))
	for _, text := range texts {
		check(batch.AddEventData(&hubs.EventData{Body: []byte(text)}, nil))
	}
	check(to.SendEventDataBatch(within, batch, nil))
}

func hubsString() string {
	return os.Getenv("BUSWAY_HUBS_CONNECTION_STRING")
}

// memory is a checkpoint store without a service.
type memory struct {
	lock        sync.Mutex
	ownership   map[string]hubs.Ownership
	checkpoints map[string]hubs.Checkpoint
}

func (store *memory) ClaimOwnership(_ context.Context, wanted []hubs.Ownership, _ *hubs.ClaimOwnershipOptions) ([]hubs.Ownership, error) {
	store.lock.Lock()
	defer store.lock.Unlock()
	if store.ownership == nil {
		store.ownership = map[string]hubs.Ownership{}
	}
	for index := range wanted {
		wanted[index].LastModifiedTime = time.Now()
		store.ownership[wanted[index].PartitionID] = wanted[index]
	}
	return wanted, nil
}

func (store *memory) ListOwnership(context.Context, string, string, string, *hubs.ListOwnershipOptions) ([]hubs.Ownership, error) {
	store.lock.Lock()
	defer store.lock.Unlock()
	found := []hubs.Ownership{}
	for _, each := range store.ownership {
		found = append(found, each)
	}
	return found, nil
}

func (store *memory) ListCheckpoints(context.Context, string, string, string, *hubs.ListCheckpointsOptions) ([]hubs.Checkpoint, error) {
	store.lock.Lock()
	defer store.lock.Unlock()
	found := []hubs.Checkpoint{}
	for _, each := range store.checkpoints {
		found = append(found, each)
	}
	return found, nil
}

func (store *memory) SetCheckpoint(_ context.Context, checkpoint hubs.Checkpoint, _ *hubs.SetCheckpointOptions) error {
	store.lock.Lock()
	defer store.lock.Unlock()
	if store.checkpoints == nil {
		store.checkpoints = map[string]hubs.Checkpoint{}
	}
	store.checkpoints[checkpoint.PartitionID] = checkpoint
	return nil
}
