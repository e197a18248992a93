#include "proxy/path_table.h"

#include <gtest/gtest.h>

namespace pointsman {
namespace {

class PathTableTest : public ::testing::Test {
 protected:
  PathAction action(std::string_view path, std::string_view method = "POST") {
    return table_.find(method, path).action;
  }
  ProxyOptions options_;
  PathTable table_{options_};
};

TEST_F(PathTableTest, PassesInferencePathsOn) {
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses/resp_1/cancel",
        "/v1/audio/transcriptions", "/v1/anything/new", "/rerank", "/v2/rerank", "/score",
        "/classify", "/pooling", "/tokenize", "/detokenize", "/generate", "/completion",
        "/invocations"}) {
    EXPECT_EQ(action(path), PathAction::kProxy) << path;
  }
}

TEST_F(PathTableTest, NoEnginesMetricsOrAdminPathIsReachable) {
  for (const char* path : {"/metrics",
                           "/",
                           "/v1",
                           "/v1/",
                           "/v1/load_lora_adapter",
                           "/v1/unload_lora_adapter",
                           "/v1/load_lora_adapter/",
                           "/v1/signals",
                           "/v1/signals/",
                           "/v1/replicas",
                           "/v1/replicas/0",
                           "/v1/replicas/0/drain",
                           "/v1/config",
                           "/reset_prefix_cache",
                           "/sleep",
                           "/wake_up",
                           "/is_sleeping",
                           "/server_info",
                           "/collective_rpc",
                           "/slots",
                           "/props",
                           "/rerank/",
                           "/generate/x",
                           "/generate_health",
                           "/docs",
                           "/openapi.json",
                           "/v2/models",
                           "/load",
                           "*"}) {
    EXPECT_EQ(action(path), PathAction::kNotFound) << path;
    EXPECT_EQ(action(path, "GET"), PathAction::kNotFound) << path;
  }
}

TEST_F(PathTableTest, AnswersHealthItself) {
  for (const char* method : {"GET", "HEAD"}) {
    EXPECT_EQ(action("/healthz", method), PathAction::kAlive);
    EXPECT_EQ(action("/health", method), PathAction::kReady);
    EXPECT_EQ(action("/readyz", method), PathAction::kReady);
    EXPECT_EQ(action("/v1/models", method), PathAction::kModels);
  }
  EXPECT_EQ(action("/healthz"), PathAction::kNotFound);
  EXPECT_EQ(action("/health/", "GET"), PathAction::kNotFound);
}

TEST_F(PathTableTest, KnowsWhatMayBeSentTwiceAndWhatNamesAModel) {
  EXPECT_TRUE(table_.find("POST", "/v1/chat/completions").stateless);
  EXPECT_TRUE(table_.find("POST", "/v1/chat/completions").needs_model);
  EXPECT_FALSE(table_.find("POST", "/v1/files").stateless);
  EXPECT_FALSE(table_.find("POST", "/v1/files").needs_model);
  EXPECT_FALSE(table_.find("POST", "/v1/responses/resp_1/cancel").stateless);
  EXPECT_EQ(table_.find("POST", "/v1/responses").api, Api::kResponses);
}

TEST_F(PathTableTest, TheListsCanBeConfigured) {
  ProxyOptions options;
  options.proxied_paths = {"/api/*", "/one"};
  options.refused_paths = {"/api/admin/*"};
  const PathTable table(options);
  EXPECT_EQ(table.find("GET", "/api/x").action, PathAction::kProxy);
  EXPECT_EQ(table.find("GET", "/one").action, PathAction::kProxy);
  EXPECT_EQ(table.find("GET", "/api/admin/x").action, PathAction::kNotFound);
  EXPECT_EQ(table.find("GET", "/v1/models").action, PathAction::kNotFound);
}

}  // namespace
}  // namespace pointsman
