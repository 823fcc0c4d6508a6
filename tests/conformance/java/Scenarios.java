// Scenarios with azure-messaging-servicebus and azure-messaging-eventhubs; prints one line of JSON for each.

import com.azure.core.util.BinaryData;
import com.azure.messaging.eventhubs.CheckpointStore;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.models.Checkpoint;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionOwnership;
import com.azure.messaging.eventhubs.models.SendOptions;
import com.azure.messaging.servicebus.*;
import com.azure.messaging.servicebus.administration.models.*;
import com.azure.messaging.servicebus.models.*;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

public final class Scenarios {
    private static final String BUS = System.getenv("BUSWAY_CONNECTION_STRING");
    private static final String HUBS = System.getenv("BUSWAY_HUBS_CONNECTION_STRING");
    private static final Duration SECONDS = Duration.ofSeconds(10);

    private interface Steps {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        scenario("send and receive, with all properties", Scenarios::sendAndReceive);
        scenario("a batch of 500", Scenarios::batch);
        scenario("settle: complete, abandon, renew", Scenarios::settle);
        scenario("deferred", Scenarios::deferred);
        scenario("dead letters", Scenarios::deadLetters);
        scenario("scheduled and cancelled", Scenarios::scheduled);
        scenario("peek", Scenarios::peek);
        scenario("sessions: state, order, next available", Scenarios::sessions);
        scenario("rules: SQL, correlation, action", Scenarios::rules);
        scenario("a transaction on one queue", Scenarios::transaction);
        scenario("a transaction across two queues", Scenarios::transactionAcrossQueues);
        scenario("an unknown queue, and a wrong key", Scenarios::refused);
        scenario("a hub: keys, partitions, positions", Scenarios::hub);
        scenario("a hub with checkpoints", Scenarios::checkpoints);
        System.exit(0);
    }

    private static void sendAndReceive() {
        var sent = new ServiceBusMessage("one").setMessageId("m").setSubject("s").setCorrelationId("c")
            .setContentType("t").setTo("to").setReplyTo("r").setTimeToLive(Duration.ofMinutes(1));
        sent.getApplicationProperties().putAll(Map.of("text", "x", "number", 7L, "flag", true, "double", 1.5));
        send("plain", sent);
        try (var receiver = receiver("plain")) {
            var found = take(receiver, 1).get(0);
            expect(List.of(found.getMessageId(), found.getSubject(), found.getCorrelationId(), found.getContentType(),
                found.getTo(), found.getReplyTo()), List.of("m", "s", "c", "t", "to", "r"));
            expect(found.getTimeToLive(), Duration.ofMinutes(1));
            expect(found.getApplicationProperties(), sent.getApplicationProperties());
            receiver.complete(found);
            nothing(receiver);
        }
    }

    private static void batch() {
        try (var sender = builder().sender().queueName("batch").buildClient();
            var receiver = builder().receiver().queueName("batch").receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            var batch = sender.createMessageBatch();
            for (int number = 0; number < 500; number++) {
                expect(batch.tryAddMessage(new ServiceBusMessage("" + number)), true);
            }
            sender.sendMessages(batch);
            var expected = IntStream.range(0, 500).mapToObj(String::valueOf).collect(Collectors.toList());
            expect(bodies(take(receiver, 500)), expected);
        }
    }

    private static void settle() {
        send("settle", new ServiceBusMessage("a"), new ServiceBusMessage("b"));
        try (var receiver = receiver("settle")) {
            var found = take(receiver, 2);
            receiver.abandon(found.get(0), new AbandonOptions().setPropertiesToModify(Map.of("why", "retry")));
            receiver.renewMessageLock(found.get(1));
            receiver.complete(found.get(1));
            var again = take(receiver, 1).get(0);
            expect(List.of(again.getBody().toString(), again.getDeliveryCount(), again.getApplicationProperties().get("why")),
                List.of("a", 1L, "retry"));
            receiver.complete(again);
        }
    }

    private static void deferred() {
        send("deferred", new ServiceBusMessage("later"));
        try (var receiver = receiver("deferred")) {
            var message = take(receiver, 1).get(0);
            receiver.defer(message);
            nothing(receiver);
            var found = receiver.receiveDeferredMessage(message.getSequenceNumber());
            expect(found.getBody().toString(), "later");
            receiver.complete(found);
        }
    }

    private static void deadLetters() {
        send("dead", new ServiceBusMessage("bad"));
        try (var receiver = receiver("dead");
            var dead = builder().receiver().queueName("dead").subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient()) {
            var why = new DeadLetterOptions().setDeadLetterReason("why").setDeadLetterErrorDescription("because");
            receiver.deadLetter(take(receiver, 1).get(0), why);
            var found = take(dead, 1).get(0);
            expect(List.of(found.getBody().toString(), found.getDeadLetterReason(), found.getDeadLetterErrorDescription()),
                List.of("bad", "why", "because"));
            dead.complete(found);
        }
    }

    private static void scheduled() {
        try (var sender = builder().sender().queueName("scheduled").buildClient(); var receiver = receiver("scheduled")) {
            var numbers = new ArrayList<Long>();
            sender.scheduleMessages(List.of(new ServiceBusMessage("soon"), new ServiceBusMessage("never")),
                OffsetDateTime.now().plus(Duration.ofMillis(1500))).forEach(numbers::add);
            sender.cancelScheduledMessage(numbers.get(1));
            expect(bodies(take(receiver, 1)), List.of("soon"));
            nothing(receiver);
        }
    }

    private static void peek() {
        send("peek", new ServiceBusMessage("1"), new ServiceBusMessage("2"));
        try (var receiver = receiver("peek")) {
            expect(bodies(receiver.peekMessages(10).stream().collect(Collectors.toList())), List.of("1", "2"));
        }
    }

    private static void sessions() {
        for (int number = 0; number < 4; number++) {
            send("sessions", new ServiceBusMessage("" + number).setSessionId("s" + number % 2));
        }
        try (var sessions = builder().sessionReceiver().queueName("sessions").disableAutoComplete().buildClient();
            var one = sessions.acceptSession("s1");
            var next = sessions.acceptNextSession()) {
            one.setSessionState("half".getBytes());
            expect(new String(one.getSessionState()), "half");
            one.renewSessionLock();
            expect(next.getSessionId(), "s0");
            var found = take(one, 2);
            expect(bodies(found), List.of("1", "3"));
            found.forEach(one::complete);
            found = take(next, 2);
            expect(bodies(found), List.of("0", "2"));
            found.forEach(next::complete);
        }
    }

    private static void rules() {
        try (var manager = builder().ruleManager().topicName("news").subscriptionName("filtered").buildClient();
            var sender = builder().sender().topicName("news").buildClient();
            var receiver = builder().receiver().topicName("news").subscriptionName("filtered")
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            manager.deleteRule("$Default");
            manager.createRule("large", new CreateRuleOptions(new SqlRuleFilter("size > 10"))
                .setAction(new SqlRuleAction("SET size = size + 1")));
            var red = new CorrelationRuleFilter();
            red.getProperties().put("colour", "red");
            manager.createRule("red", new CreateRuleOptions(red));
            var names = manager.listRules().stream().map(RuleProperties::getName).sorted().collect(Collectors.toList());
            expect(names, List.of("large", "red"));
            var properties = List.of(Map.of("size", 5), Map.of("size", 11), Map.of("colour", "red"));
            for (int number = 0; number < 3; number++) {
                var message = new ServiceBusMessage("" + number);
                message.getApplicationProperties().putAll(properties.get(number));
                sender.sendMessage(message);
            }
            var found = take(receiver, 2);
            expect(bodies(found), List.of("1", "2"));
            expect(((Number) found.get(0).getApplicationProperties().get("size")).longValue(), 12L);
        }
    }

    private static void transaction() {
        send("source", new ServiceBusMessage("a"), new ServiceBusMessage("b"));
        // A transaction belongs to one connection, which clients of one builder share.
        var shared = builder();
        try (var sender = shared.sender().queueName("source").buildClient();
            var receiver = shared.receiver().queueName("source").disableAutoComplete().buildClient()) {
            var found = take(receiver, 2);
            var first = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("never"), first);
            receiver.complete(found.get(0), new CompleteOptions().setTransactionContext(first));
            sender.rollbackTransaction(first);
            nothing(receiver);
            var second = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("new"), second);
            receiver.complete(found.get(1), new CompleteOptions().setTransactionContext(second));
            sender.commitTransaction(second);
            expect(bodies(take(receiver, 1)), List.of("new"));
            // This client takes what was rolled back for settled, so the message stays until its lock ends.
            expect(bodies(receiver.peekMessages(10).stream().collect(Collectors.toList())), List.of("a", "new"));
        }
    }

    private static void transactionAcrossQueues() {
        send("settle", new ServiceBusMessage("order"));
        var shared = builder().enableCrossEntityTransactions();
        try (var receiver = shared.receiver().queueName("settle").disableAutoComplete().buildClient();
            var sender = shared.sender().queueName("target").buildClient();
            var target = receiver("target")) {
            var order = take(receiver, 1).get(0);
            var first = receiver.createTransaction();
            receiver.complete(order, new CompleteOptions().setTransactionContext(first));
            sender.sendMessage(new ServiceBusMessage("invoice"), first);
            nothing(target);
            receiver.commitTransaction(first);
            var invoice = take(target, 1).get(0);
            expect(invoice.getBody().toString(), "invoice");
            target.complete(invoice);
            nothing(receiver);
        }
    }

    private static void refused() {
        try (var sender = builder().sender().queueName("unknown").buildClient()) {
            expectReason(() -> sender.sendMessage(new ServiceBusMessage("x")), ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND);
        }
        var wrong = BUS.replaceFirst("SharedAccessKey=[^;]*", "SharedAccessKey=d3Jvbmc=");
        try (var sender = new ServiceBusClientBuilder().connectionString(wrong).sender().queueName("plain").buildClient()) {
            expectReason(() -> sender.sendMessage(new ServiceBusMessage("x")), ServiceBusFailureReason.UNAUTHORIZED);
        }
    }

    private static void hub() {
        try (var producer = hubBuilder("hub").buildProducerClient();
            var consumer = hubBuilder("hub").consumerGroup("$Default").buildConsumerClient()) {
            expect(producer.getPartitionIds().stream().collect(Collectors.toList()), List.of("0", "1"));
            producer.send(events("1", "2", "3"), new SendOptions().setPartitionId("0"));
            producer.send(events("4"), new SendOptions().setPartitionKey("k"));
            var last = producer.getPartitionProperties("0").getLastEnqueuedSequenceNumber();
            var found = consumer.receiveFromPartition("0", 3, EventPosition.earliest(), SECONDS).stream()
                .map(each -> each.getData().getBodyAsString()).collect(Collectors.toList());
            expect(found, List.of("1", "2", "3"));
            var latest = consumer.receiveFromPartition("0", 1, EventPosition.fromSequenceNumber(last, true), SECONDS).stream()
                .map(each -> each.getData().getSequenceNumber()).collect(Collectors.toList());
            expect(latest, List.of(last));
        }
    }

    private static void checkpoints() throws Exception {
        var store = new Memory();
        try (var producer = hubBuilder("checkpoints").buildProducerClient()) {
            producer.send(events("1", "2"), new SendOptions().setPartitionKey("k"));
            expect(process(store, 2), List.of("1", "2"));
            producer.send(events("3"), new SendOptions().setPartitionKey("k"));
            expect(process(store, 1), List.of("3"));
        }
    }

    private static List<String> process(CheckpointStore store, int count) throws Exception {
        var found = new LinkedBlockingQueue<String>();
        var processor = new EventProcessorClientBuilder().connectionString(HUBS, "checkpoints").consumerGroup("$Default")
            .checkpointStore(store).loadBalancingUpdateInterval(Duration.ofSeconds(1))
            .initialPartitionEventPosition(id -> EventPosition.earliest())
            .processEvent(context -> {
                context.updateCheckpoint();
                found.add(context.getEventData().getBodyAsString());
            })
            .processError(context -> System.err.println(context.getThrowable()))
            .buildEventProcessorClient();
        processor.start();
        try {
            var seen = new ArrayList<String>();
            while (seen.size() < count) {
                var next = found.poll(30, TimeUnit.SECONDS);
                if (next == null) {
                    throw new AssertionError(seen.size() + " of " + count + " events arrived");
                }
                seen.add(next);
            }
            return seen;
        } finally {
            processor.stop();
        }
    }

    private static ServiceBusClientBuilder builder() {
        return new ServiceBusClientBuilder().connectionString(BUS);
    }

    private static EventHubClientBuilder hubBuilder(String hub) {
        return new EventHubClientBuilder().connectionString(HUBS, hub);
    }

    private static List<EventData> events(String... texts) {
        return Arrays.stream(texts).map(EventData::new).collect(Collectors.toList());
    }

    private static ServiceBusReceiverClient receiver(String queue) {
        return builder().receiver().queueName(queue).disableAutoComplete().buildClient();
    }

    private static void send(String queue, ServiceBusMessage... messages) {
        try (var sender = builder().sender().queueName(queue).buildClient()) {
            sender.sendMessages(List.of(messages));
        }
    }

    private static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient receiver, int count) {
        var found = new ArrayList<ServiceBusReceivedMessage>();
        while (found.size() < count) {
            int before = found.size();
            receiver.receiveMessages(count - before, SECONDS).forEach(found::add);
            if (found.size() == before) {
                throw new AssertionError(before + " of " + count + " messages arrived");
            }
        }
        return found;
    }

    private static void nothing(ServiceBusReceiverClient receiver) {
        expect(bodies(receiver.receiveMessages(1, Duration.ofMillis(500)).stream().collect(Collectors.toList())), List.of());
    }

    private static List<String> bodies(List<ServiceBusReceivedMessage> messages) {
        return messages.stream().map(each -> each.getBody().toString()).collect(Collectors.toList());
    }

    private static void expectReason(Runnable attempt, ServiceBusFailureReason reason) {
        try {
            attempt.run();
        } catch (ServiceBusException error) {
            expect(error.getReason(), reason);
            return;
        }
        throw new AssertionError("no error, expected " + reason);
    }

    private static void expect(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError("got " + found + ", expected " + expected);
        }
    }

    private static void scenario(String name, Steps steps) {
        var running = CompletableFuture.supplyAsync(() -> {
            try {
                steps.run();
                return "";
            } catch (Throwable error) {
                error.printStackTrace();
                return String.valueOf(error);
            }
        });
        String reason;
        try {
            reason = running.get(60, TimeUnit.SECONDS);
        } catch (Exception error) {
            reason = "no end after 60 s";
        }
        var quoted = reason.lines().findFirst().orElse("").replace("\\", "\\\\").replace("\"", "\\\"").replace("\t", " ");
        var outcome = reason.isEmpty() ? "passed" : "failed";
        System.out.printf("{\"name\": \"%s\", \"outcome\": \"%s\", \"reason\": \"%s\"}%n", name, outcome, quoted);
    }

    /** A checkpoint store without a service. */
    private static final class Memory implements CheckpointStore {
        private final Map<String, PartitionOwnership> ownership = new ConcurrentHashMap<>();
        private final Map<String, Checkpoint> checkpoints = new ConcurrentHashMap<>();

        @Override
        public Flux<PartitionOwnership> listOwnership(String namespace, String hub, String group) {
            return Flux.fromIterable(ownership.values());
        }

        @Override
        public Flux<PartitionOwnership> claimOwnership(List<PartitionOwnership> wanted) {
            return Flux.fromIterable(wanted).doOnNext(each -> {
                each.setETag(UUID.randomUUID().toString()).setLastModifiedTime(System.currentTimeMillis());
                ownership.put(each.getPartitionId(), each);
            });
        }

        @Override
        public Flux<Checkpoint> listCheckpoints(String namespace, String hub, String group) {
            return Flux.fromIterable(checkpoints.values());
        }

        @Override
        public Mono<Void> updateCheckpoint(Checkpoint checkpoint) {
            return Mono.fromRunnable(() -> checkpoints.put(checkpoint.getPartitionId(), checkpoint));
        }
    }
}
