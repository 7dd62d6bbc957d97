#include "deploy/page/page_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "coordinator/service/certificates.h"
#include "parallel/base/check.h"
#include "tests/deploy/page/run_directory_fixture.h"

namespace headroom::page {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Connection {
 public:
  explicit Connection(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_open_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address),
                         sizeof address) == 0;
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_open() const { return is_open_; }
  void send(const std::string& text) const {
    ASSERT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void try_to_send(const std::string& text) const {
    static_cast<void>(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL));
  }
  // Whether the other side has closed, and all its data was read.
  bool is_ended() const {
    char byte = 0;
    const ssize_t count = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  }
  // Reads until `end`, until the other side closes, or until the time is over.
  std::string read(const std::string& end = "", int milliseconds = 5000) const {
    std::string text;
    const auto last = std::chrono::steady_clock::now() +
                      std::chrono::milliseconds(milliseconds);
    while (std::chrono::steady_clock::now() < last) {
      pollfd waiting{socket_, POLLIN, 0};
      if (::poll(&waiting, 1, 50) <= 0) continue;
      char buffer[65536];
      const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      text.append(buffer, static_cast<size_t>(count));
      if (!end.empty() && text.find(end) != std::string::npos) break;
    }
    return text;
  }

 private:
  int socket_;
  bool is_open_ = false;
};

class PageServerTest : public ::testing::Test {
 protected:
  PageServerTest() { start(); }

  static PageOptions options_of(const std::filesystem::path& folder) {
    PageOptions options;
    options.source.places = [folder] { return records::runs_of(folder); };
    options.source.refresh_interval = std::chrono::milliseconds(20);
    options.sign_of_life = std::chrono::milliseconds(200);
    return options;
  }
  void start(std::chrono::seconds idle_time = std::chrono::seconds(30)) {
    PageOptions options = options_of(folder_.path());
    options.idle_time = idle_time;
    server_ = std::make_unique<PageServer>(std::move(options));
  }

  std::string host() const {
    return "127.0.0.1:" + std::to_string(server_->port());
  }
  // The header that the page's script sends.
  std::string token() const {
    return "X-Headroom-Token: " + server_->token() + "\r\n";
  }
  std::string request(const std::string& path, const std::string& headers,
                      const std::string& method = "GET") const {
    return method + " " + path + " HTTP/1.1\r\n" + headers +
           "Connection: close\r\n\r\n";
  }
  // The whole response to a request with these headers.
  std::string ask_with(const std::string& path, const std::string& headers,
                       const std::string& method = "GET") const {
    const Connection connection(server_->port());
    connection.send(request(path, headers, method));
    return connection.read();
  }
  std::string ask(const std::string& path,
                  const std::string& method = "GET") const {
    return ask_with(path, "Host: " + host() + "\r\n" + token(), method);
  }
  void subscribe(const Connection& connection) const {
    connection.send("GET /events HTTP/1.1\r\nHost: " + host() + "\r\n" +
                    token() + "\r\n");
  }
  // The size of steps.jsonl, as an event of the page reports it.
  std::string steps_now() const {
    return "\"steps\":" + std::to_string(steps_bytes(folder_.path())) + "}";
  }
  static int status_of(const std::string& response) {
    return response.size() < 12 ? 0 : std::atoi(response.substr(9, 3).c_str());
  }

  const RunDirectory folder_;
  std::unique_ptr<PageServer> server_;
};

// The script of the page sends the token; a cookie would go to every port of
// the machine.
TEST_F(PageServerTest, ThePageIsServedAtThePrintedAddressWithoutACookie) {
  EXPECT_EQ(server_->address(),
            "http://" + host() + "/?token=" + server_->token());
  for (const std::string& path : {"/?token=" + server_->token(),
                                  std::string("/"), std::string("/?token=0")}) {
    const std::string page = ask_with(path, "Host: " + host() + "\r\n");
    EXPECT_EQ(status_of(page), 200) << path;
    EXPECT_THAT(page, HasSubstr("<!doctype html>")) << path;
    EXPECT_THAT(page, Not(HasSubstr("Set-Cookie"))) << path;
    EXPECT_THAT(page, Not(HasSubstr(server_->token()))) << path;
    EXPECT_THAT(page, Not(HasSubstr("yolov5n"))) << path;
  }
}

TEST_F(PageServerTest, WithoutTheTokenNothingOfARunIsAnswered) {
  const std::string own = "Host: " + host() + "\r\n";
  std::string almost = token();
  almost[almost.size() - 3] ^= 1;
  const std::string cookie =
      "Cookie: token=" + server_->token() + "; headroom_page_" +
      std::to_string(server_->port()) + "=" + server_->token() + "\r\n";
  for (const char* path :
       {"/api/plan?id=exp", "/api/run?id=exp", "/api/steps?id=exp",
        "/api/timeline?id=exp", "/events", "/files?id=exp&name=results.png",
        "/api/run?id=exp&token=", "/api/run?id=exp&token=0000"}) {
    for (const std::string& headers : {std::string(), almost, cookie}) {
      const std::string refusal = ask_with(path, own + headers);
      EXPECT_EQ(status_of(refusal), 403) << path;
      EXPECT_THAT(refusal, Not(HasSubstr(server_->token()))) << path;
      EXPECT_THAT(refusal, Not(HasSubstr("yolov5n"))) << path;
    }
  }
}

// Another user of the machine holds as many connections as the server accepts,
// and sends a byte on each.
TEST_F(PageServerTest, SlowStrangersTakeNoConnectionOfAReader) {
  const Connection reader(server_->port());
  subscribe(reader);
  EXPECT_THAT(reader.read(steps_now()), HasSubstr(steps_now()));
  std::vector<std::unique_ptr<Connection>> strangers;
  for (int i = 0; i < 600; ++i) {
    strangers.push_back(std::make_unique<Connection>(server_->port()));
    ASSERT_TRUE(strangers.back()->is_open()) << i;
    strangers.back()->try_to_send("G");
  }
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(status_of(ask("/api/run?id=exp")), 200) << i;
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(1));
  }
  folder_.append("steps.jsonl", step_line(6) + "\n");
  EXPECT_THAT(reader.read(steps_now()), HasSubstr(steps_now()));
  // The oldest connection was closed for the newest one.
  EXPECT_EQ(strangers.front()->read("", 2000), "");
  EXPECT_TRUE(strangers.front()->is_ended());
  EXPECT_FALSE(strangers.back()->is_ended());
}

TEST_F(PageServerTest, AStrangersHeadHasALimitHoweverItsBytesArrive) {
  PageOptions options = options_of(folder_.path());
  options.head_time = std::chrono::milliseconds(1000);
  server_ = std::make_unique<PageServer>(std::move(options));
  const Connection reader(server_->port());
  subscribe(reader);
  reader.read(steps_now());
  const Connection slow(server_->port());
  slow.send("GET / HTTP/1.1\r\nHost: " + host() + "\r\nX: ");
  const auto begin = std::chrono::steady_clock::now();
  while (!slow.is_ended() &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
    slow.try_to_send("x");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const auto passed = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(passed, std::chrono::milliseconds(900));
  EXPECT_LT(passed, std::chrono::seconds(3));
  folder_.append("steps.jsonl", step_line(6) + "\n");
  EXPECT_THAT(reader.read(steps_now()), HasSubstr(steps_now()))
      << "a reader's stream has no such limit";
}

TEST_F(PageServerTest, OnlyReadingIsAnswered) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    EXPECT_EQ(status_of(ask("/api/run?id=exp", method)), 405) << method;
  }
  const std::string head = ask("/api/run?id=exp", "HEAD");
  EXPECT_EQ(status_of(head), 200);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
}

TEST_F(PageServerTest, TheRunIsStoppedByItsOwnPageAlone) {
  const auto stop = [this](const std::string& headers) {
    return status_of(
        ask_with("/api/stop", "Host: " + host() + "\r\n" + headers, "POST"));
  };
  const std::string asked = "X-Headroom-Control: stop\r\n";
  const std::string own = "Origin: http://" + host() + "\r\n";
  EXPECT_EQ(stop(token() + own + asked), 405) << "not where it may not";

  std::atomic<int> stops{0};
  PageOptions options = options_of(folder_.path());
  options.stop = [&] { ++stops; };
  server_ = std::make_unique<PageServer>(std::move(options));
  const std::string here = "Origin: http://" + host() + "\r\n";
  EXPECT_EQ(stop(here + asked), 403) << "without the token";
  EXPECT_EQ(stop(token() + asked), 403) << "without an origin";
  EXPECT_EQ(stop(token() + here), 403) << "by a form";
  EXPECT_EQ(stop(token() + "Origin: http://127.0.0.1:1\r\n" + asked), 403);
  EXPECT_EQ(status_of(ask("/api/stop")), 404) << "by a link";
  EXPECT_EQ(stops, 0);
  EXPECT_EQ(stop(token() + here + asked), 202);
  EXPECT_EQ(stops, 1);
  EXPECT_EQ(status_of(ask("/api/run?id=exp", "POST")), 405);
}

TEST_F(PageServerTest, AnotherSitesNameAndOriginAreRefused) {
  const std::string port = std::to_string(server_->port());
  for (const std::string& other :
       {"evil.example:" + port, std::string("evil.example"),
        "127.0.0.1.evil.example:" + port, std::string("")}) {
    EXPECT_EQ(status_of(ask_with("/", "Host: " + other + "\r\n" + token())),
              403)
        << other;
  }
  for (const std::string& own :
       {"localhost:" + port, "[::1]:" + port, std::string("localhost:8080")}) {
    EXPECT_EQ(status_of(ask_with("/", "Host: " + own + "\r\n" + token())), 200)
        << own;
  }
  const std::string known = "Host: " + host() + "\r\n" + token();
  for (const std::string& origin :
       {std::string("http://evil.example"), std::string("null"),
        "https://" + host(), std::string("http://127.0.0.1:1")}) {
    EXPECT_EQ(status_of(ask_with("/api/run?id=exp",
                                 known + "Origin: " + origin + "\r\n")),
              403)
        << origin;
  }
  EXPECT_EQ(status_of(ask_with("/api/run?id=exp",
                               known + "Origin: http://" + host() + "\r\n")),
            200);
}

TEST_F(PageServerTest, EveryAnswerHasTheRulesForTheBrowser) {
  for (const char* path : {"/", "/api/run?id=exp", "/nothing"}) {
    const std::string answer = ask(path);
    EXPECT_THAT(answer,
                HasSubstr("Content-Security-Policy: default-src 'none'"));
    EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff"));
    EXPECT_THAT(answer, HasSubstr("Cache-Control: no-store"));
    EXPECT_THAT(answer, HasSubstr("Referrer-Policy: no-referrer"));
  }
}

TEST_F(PageServerTest, TheApiAnswersForARun) {
  EXPECT_THAT(ask("/api/run?id=exp"), HasSubstr("finished"));
  EXPECT_THAT(ask("/api/plan?id=exp"), HasSubstr("\"settings\""));
  EXPECT_THAT(ask("/api/steps?id=exp&points=5"), HasSubstr("\"total\":6"));
  EXPECT_THAT(ask("/api/timeline?id=exp&rank=1"), HasSubstr("\"rank\":1"));
  for (const char* path : {"/api/run?id=none", "/api/run",
                           "/api/timeline?id=exp&rank=2", "/api/steps?id=none",
                           "/api/plan?id=none", "/api", "/api/run/?id=exp"}) {
    EXPECT_EQ(status_of(ask(path)), 404) << path;
  }
  for (const char* path :
       {"/api/steps?id=exp&points=0", "/api/steps?id=exp&points=1000000",
        "/api/steps?id=exp&points=many", "/api/steps?id=exp&from=-1",
        "/api/run?id=exp&events=0", "/api/run?id=exp&events=501",
        "/api/timeline?id=exp&rank=-1"}) {
    EXPECT_EQ(status_of(ask(path)), 400) << path;
  }
}

TEST_F(PageServerTest, OnlyPicturesOfTheFolderAreServed) {
  const std::string picture = ask("/files?id=exp&name=val_batch0_pred.jpg");
  EXPECT_EQ(status_of(picture), 200);
  EXPECT_THAT(picture, HasSubstr("image/jpeg"));
  EXPECT_TRUE(picture.ends_with(std::string(3000, 'j')));
  std::filesystem::create_symlink("/etc/passwd", folder_.path() / "link.png");
  std::filesystem::create_directory(folder_.path() / "folder.png");
  std::filesystem::create_directory(folder_.parent() / "secret");
  std::ofstream(folder_.parent() / "secret" / "a.png") << "secret";
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const char* name :
       {"run.yaml", "steps.jsonl", "../secret/a.png", "..%2Fsecret%2Fa.png",
        "%2e%2e/secret/a.png", "/etc/passwd", "link.png", "folder.png",
        "./results.png", "results.png%00.jpg", "checkpoints/../results.png",
        ""}) {
    EXPECT_EQ(status_of(ask(std::string("/files?id=exp&name=") + name)), 404)
        << name;
  }
  EXPECT_EQ(status_of(ask("/files?id=..&name=a.png")), 404);
  EXPECT_EQ(status_of(ask("/../run.yaml")), 404);
}

TEST_F(PageServerTest, ChangesArriveAsEventsWithSignsOfLifeBetweenThem) {
  const Connection connection(server_->port());
  subscribe(connection);
  const std::string first = connection.read("\n\n");
  EXPECT_THAT(first, HasSubstr("text/event-stream"));
  EXPECT_THAT(first, HasSubstr("event: changed\ndata: {"));
  EXPECT_THAT(first, HasSubstr(steps_now()));
  EXPECT_THAT(connection.read(": alive\n"), HasSubstr(": alive\n"));
  folder_.append("steps.jsonl", step_line(6) + "\n");
  EXPECT_THAT(connection.read(steps_now()), HasSubstr(steps_now()));
}

TEST_F(PageServerTest, TwoHundredReadersGetEachChange) {
  std::vector<std::unique_ptr<Connection>> readers;
  for (int i = 0; i < 200; ++i) {
    readers.push_back(std::make_unique<Connection>(server_->port()));
    ASSERT_TRUE(readers.back()->is_open()) << i;
    subscribe(*readers.back());
  }
  for (const auto& reader : readers) {
    ASSERT_THAT(reader->read(steps_now()), HasSubstr(steps_now()));
  }
  folder_.append("steps.jsonl", step_line(6) + "\n");
  for (const auto& reader : readers) {
    ASSERT_THAT(reader->read(steps_now()), HasSubstr(steps_now()));
  }
  // Other readers are answered at the same time.
  EXPECT_EQ(status_of(ask("/api/run?id=exp")), 200);
}

TEST_F(PageServerTest, AFaultInARunsFilesEndsNoStreamAndNoProcess) {
  std::atomic<bool> is_faulty = false;
  PageOptions options = options_of(folder_.path());
  options.source.is_held = [&](const std::filesystem::path&) {
    if (is_faulty) throw CheckFailure("a fault");
    return false;
  };
  server_ = std::make_unique<PageServer>(std::move(options));
  const Connection connection(server_->port());
  subscribe(connection);
  connection.read(steps_now());
  is_faulty = true;
  folder_.append("steps.jsonl", step_line(6) + "\n");
  EXPECT_THAT(connection.read(": alive\n"), Not(HasSubstr(steps_now())));
  is_faulty = false;
  EXPECT_THAT(connection.read(steps_now()), HasSubstr(steps_now()));
  is_faulty = true;
  server_.reset();
}

TEST_F(PageServerTest, AStuckReaderDelaysNoOtherAndIsClosed) {
  // More bytes than the system's buffers hold.
  std::string picture(30 << 20, 'p');
  std::ofstream(folder_.path() / "large.png") << picture;
  start(std::chrono::seconds(1));
  const Connection silent(server_->port()), half(server_->port());
  silent.send(request("/files?id=exp&name=large.png",
                      "Host: " + host() + "\r\n" + token()));
  half.send("GET / HTTP/1.1\r\nHost: ");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(status_of(ask("/api/run?id=exp")), 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  // The reader gets the data that the system had already accepted; then the
  // connection ends.
  EXPECT_LT(silent.read("", 10'000).size(), picture.size());
  const std::string end = half.read("", 5000);
  EXPECT_TRUE(end.empty() || status_of(end) == 408) << end;
}

TEST_F(PageServerTest, AServerEndsWithItsReaders) {
  const Connection connection(server_->port());
  subscribe(connection);
  connection.read("\n\n");
  const auto begin = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST_F(PageServerTest, AnAddressThatIsTakenIsRefusedWithTheFlagToChange) {
  PageOptions options = options_of(folder_.path());
  options.listen = host();
  try {
    const PageServer second(options);
    FAIL() << "two servers at one address";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("Address already in use"));
    EXPECT_THAT(error.remedy(), HasSubstr("--page HOST:PORT"));
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
  }
}

TEST_F(PageServerTest, BeyondLoopbackItNeedsCertificatesAndAToken) {
  PageOptions options = options_of(folder_.path());
  options.listen = "0.0.0.0:0";
  EXPECT_THROW(PageServer{options}, Error);
  options.insecure_network = true;
  server_ = std::make_unique<PageServer>(options);
  EXPECT_GT(server_->port(), 0);
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  const std::string machine(name);
  const std::string short_name = machine.substr(0, machine.find('.'));
  const auto status_at = [&](const std::string& named) {
    return status_of(ask_with("/", "Host: " + named + "\r\n" + token()));
  };
  for (const std::string& own :
       {machine, short_name + ".lab.example:1", std::string("10.0.0.5")}) {
    EXPECT_EQ(status_at(own), 200) << own;
  }
  for (const std::string& other :
       {short_name + "x", short_name + "x.lab.example",
        std::string("evil.example")}) {
    EXPECT_EQ(status_at(other), 403) << other;
  }
}

TEST_F(PageServerTest, UnderACertificateEveryNameMayReachIt) {
  const headroom::testing::TemporaryFolder folder;
  coordinator::make_certificates(folder.path() / "certs", {"ml.example"});
  PageOptions options = options_of(folder_.path());
  options.security = wire::read_channel_security(
      (folder.path() / "certs").string(), "", wire::ChannelSide::kServer);
  server_ = std::make_unique<PageServer>(std::move(options));
  httplib::SSLClient client("127.0.0.1", server_->port());
  client.enable_server_certificate_verification(false);
  const auto status_with = [&](const std::string& token) {
    const auto answer =
        client.Get("/api/run?id=exp",
                   {{"Host", "ml.example:1234"}, {"X-Headroom-Token", token}});
    return answer ? answer->status : 0;
  };
  EXPECT_EQ(status_with(server_->token()), 200);
  EXPECT_EQ(status_with(""), 403);
}

}  // namespace
}  // namespace headroom::page
