#include "net/asio.h"

#include <asio/impl/src.hpp>
#include <asio/ssl/impl/src.hpp>
